"""The conformance suite has teeth: each deliberately broken device fails the test made for its defect."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec

import pytest

pytestmark = pytest.mark.skipif(
    not all(map(find_spec, ("hypothesis", "tile_lang", "tile_opt"))), reason="needs the extra"
)

PLUGIN = """
import contextlib
from dataclasses import replace

import numpy as np
import tile_hal
from tile_hal.host import HostDevice, HostDeviceSet, parameters
from tile_hal.builtin.interp import InterpCompiler, InterpDriver, InterpExecutor, InterpKernel, InterpLibrary
from tile_hal.events import COMPLETED
from tile_ir.dtype import DType


class Swallow(tile_hal.Event):
    def __init__(self, event):
        self.event = event

    def wait(self):
        with contextlib.suppress(Exception):
            self.event.wait()
        return tile_hal.Result()

    @property
    def done(self):
        return self.event.done


def flush(wanted, buffers):
    for parameter, buffer in zip(wanted, buffers):
        if parameter.dtype in FLUSHED and isinstance(buffer, tile_hal.HostBuffer) and not buffer.readonly:
            array = buffer.as_array(parameter.dtype.numpy)
            array[np.abs(array.astype(np.float64)) < 2.0 ** -126] = 0


class Kernel(InterpKernel):
    def __init__(self, inner, defect, wanted):
        self.inner, self.defect, self.wanted = inner, defect, wanted

    def run(self, params, dependencies=(), *, profile=False):
        if self.defect == "hasty":
            return self.inner.run(params, (), profile=profile)
        if self.defect == "forgiving":
            return self.inner.run(params, [Swallow(e) for e in dependencies], profile=profile)
        if self.defect == "blocking":
            for event in dependencies:
                event.wait()
        if self.defect == "lenient":
            try:
                return self.inner.run(params, dependencies, profile=profile)
            except tile_hal.conformance_error:
                return COMPLETED
        flushes = "flush" in self.defect and not dependencies
        if flushes:
            flush(self.wanted[1:], params[1:])
        event = self.inner.run(params, dependencies, profile=profile)
        if flushes:
            event.wait()
            flush(self.wanted[:1], params[:1])
        if self.defect == "imprecise":
            event.wait()
            out = params[0].array.view(np.float32) if params[0].nbytes % 4 == 0 else None
            if out is not None:
                with np.errstate(all="ignore"):
                    out *= np.float32(1 + 2e-6)
        return event


class Executor(InterpExecutor):
    def __init__(self, defect):
        super().__init__()
        self.defect = defect

    def prepare(self, library, index):
        ready = super().prepare(library, index)
        return Kernel(ready, self.defect, parameters(library.kernels.kernels[index]))

    def copy(self, src, dst, dependencies=()):
        return super().copy(src, dst, () if self.defect == "hasty" else dependencies)

    def fill(self, dst, dependencies=()):
        return COMPLETED if self.defect == "idle" else super().fill(dst, dependencies)


class Compiler(InterpCompiler):
    def __init__(self, nodes, defect):
        super().__init__(nodes)
        self.defect = defect

    def build(self, kernels):
        return InterpLibrary(kernels) if self.defect == "careless" else super().build(kernels)

    def deserialize(self, kernels, data):
        return InterpLibrary(kernels) if self.defect == "careless" else super().deserialize(kernels, data)


DEFECTS = ["none", "hasty", "forgiving", "lenient", "imprecise", "idle", "careless", "blocking", "flushing", "flush, and say so"]
FLUSHED = frozenset({DType.FLOAT32, DType.BFLOAT16})
from tile_ir.diagnostics import TileDeviceError
tile_hal.conformance_error = TileDeviceError


class Driver(InterpDriver):
    name = "saboteur"

    def device_sets(self):
        (group,) = super().device_sets()
        model = group.devices[0]
        return [HostDeviceSet([
            HostDevice(f"saboteur:{n}", defect, model.target,
                       replace(model.capabilities, flushes_subnormals=FLUSHED if "say" in defect else frozenset()),
                       Compiler(model.capabilities.nodes, defect), Executor(defect))
            for n, defect in enumerate(DEFECTS)
        ])]


@tile_hal.hookimpl
def tile_hal_driver():
    return Driver()
"""
CAUGHT = {
    "hasty": {"test_work_waits_for_its_dependency[kernel]", "test_copy_of_an_output_waits_for_its_kernel"},
    "forgiving": {"test_a_failed_dependency_fails_the_work_without_running_it"},
    "lenient": {"test_bad_parameters_are_refused[too_few]", "test_bad_parameters_are_refused[small_input]"},
    "imprecise": {"test_math[exp-float32]", "test_binary[mul-float32]"},
    "idle": {"test_copy_and_fill[100]"},
    "flushing": {"test_binary[mul-float32]", "test_binary[add-bfloat16]", "test_compare[cmp_lt-float32]"},
    "blocking": {"test_independent_work_overtakes_what_is_held_back"},
    "careless": {"test_foreign_bytes_are_refused[zeros]"},
}
# Two devices would sit out the time limit in every test that holds work back: one such test is enough.
HELD = "waits or overtakes or fails_the_work"
SELECTION = (
    f"(({HELD}) and not saboteur:4 and not saboteur:7) or (overtakes and saboteur:7) or bad_parameters or fill or foreign"
    " or (math and exp-float32) or (binary and mul-float32) or (binary and add-bfloat16) or (compare and cmp_lt-float32)"
)


def test_every_defect_is_caught(tmp_path):
    (tmp_path / "saboteur.py").write_text(PLUGIN)
    command = [sys.executable, "-m", "tile_hal.conformance", "--backend=saboteur", "--plugin=saboteur", "--json=r.json"]
    done = subprocess.run(
        [*command, "--", "--tile-timeout=2", "-k", SELECTION], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 1, done.stdout + done.stderr
    report = json.loads((tmp_path / "r.json").read_text())
    names = {d["id"]: d["name"] for d in report["devices"]}
    failed: dict[str, dict[str, str]] = {name: {} for name in names.values()}
    for case in report["cases"]:
        if case["outcome"] == "failed":
            failed[names[case["device"]]][case["name"]] = case["reason"]
    assert failed.pop("none") == failed.pop("flush, and say so") == {}
    for defect, tests in CAUGHT.items():
        assert tests <= failed[defect].keys(), (defect, failed[defect])
    reasons = failed["flushing"].values()
    told = [reason for reason in reasons if "lanes differ from the scalar form" not in reason]
    assert told and all("flushes them says so: Capabilities(flushes_subnormals=" in reason for reason in told), reasons
