"""The conformance suite on devices that take scheduled Stripe: what applies, what does not, and that it has teeth."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import tile_hal
from tile_hal.conformance import samples
from tile_hal.conformance.kernels import function_of, kernel_of, reference
from tile_ir.diagnostics import TileDeviceError
from tile_ir.dtype import DType
from tile_ir.kernels import Kernel, KernelList
from tile_ir.stripe import nodes as ir

PLUGIN = '''
from dataclasses import replace

import tile_hal
from tile_hal.host import HostDevice, HostDeviceSet
from tile_hal.builtin.interp import InterpCompiler, InterpDriver, InterpExecutor, InterpLibrary
from tile_ir.stripe.nodes import Block, Op


def wrong(block):
    """Maxima become minima."""
    body = [wrong(s) if isinstance(s, Block) else replace(s, name="min") if isinstance(s, Op) and s.name == "max" else s
            for s in block.body]
    return replace(block, body=tuple(body))


class Compiler(InterpCompiler):
    def build(self, kernels):
        super().build(kernels)
        return InterpLibrary(replace(kernels, kernels=tuple(replace(k, stripe=wrong(k.stripe)) for k in kernels.kernels)))


class Careless(InterpCompiler):
    def build(self, kernels):
        return InterpLibrary(kernels)


class Driver(InterpDriver):
    name = "striped"

    def device_sets(self):
        (group,) = super().device_sets()
        model = group.devices[0]
        target = replace(model.target, codegen="stripe")
        compilers = [InterpCompiler(target.nodes), Compiler(target.nodes), Careless(target.nodes)]
        return [HostDeviceSet([
            HostDevice(f"striped:{n}", f"number {n}", target, model.capabilities, compiler, InterpExecutor())
            for n, compiler in enumerate(compilers)
        ])]


@tile_hal.hookimpl
def tile_hal_driver():
    return Driver()
'''
SELECTION = (
    "level2 or (level5 and not large and not thousand) or libraries or (level3 and (max or test_for)) or matmul_of"
)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("striped")
    (folder / "striped.py").write_text(PLUGIN)
    command = [sys.executable, "-m", "tile_hal.conformance", "--backend=striped", "--plugin=striped", "--json=r.json"]
    done = subprocess.run(
        [*command, "--markdown=r.md", "--", "-k", SELECTION, "-p", "no:xdist"],
        capture_output=True,
        text=True,
        cwd=folder,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return json.loads((folder / "r.json").read_text()) | {"text": (folder / "r.md").read_text()}


def failed(report, device: str) -> set[str]:
    return {c["name"] for c in report["cases"] if c["device"] == device and c["outcome"] == "failed"}


def test_a_device_that_takes_stripe_can_conform(report):
    assert failed(report, "striped:0") == set()
    outcomes = {level: Counter(c["outcome"] for c in report["cases"] if c["device"] == "striped:0" and c["level"] == level)
                for level in (2, 3, 5)}  # fmt: skip
    assert outcomes[2] == {"passed": 18} and outcomes[5]["passed"] > 20
    mine = [c for c in report["cases"] if c["device"] == "striped:0" and c["level"] == 3]
    skipped = {c["reason"] for c in mine if c["outcome"] == "skipped"}
    assert outcomes[3]["passed"] > len(DType) and skipped <= {"device has no exporter"}
    assert outcomes[3]["inapplicable"] > len(DType)
    assert report["devices"][0]["level"] is None, "levels 0 and 1 were left out"


def test_the_table_tells_what_does_not_apply_from_what_is_skipped(report):
    assert "| level | | passed | failed | skipped | quirks | not applicable | did not run |" in report["text"]
    assert "Takes scheduled Stripe." in report["text"]
    reasons = {c["reason"] for c in report["cases"] if c["outcome"] == "inapplicable"}
    assert reasons == {"not applicable: this tests semtree, the device takes stripe"}


def test_wrong_operations_and_unverified_kernels_are_caught(report):
    assert {f"test_operation[max-{d.value}]" for d in (DType.FLOAT32, DType.INT8)} <= failed(report, "striped:1")
    malformed = {
        "test_a_malformed_kernel_fails_to_build[undeclared]",
        "test_a_malformed_kernel_fails_to_build[unknown_operation]",
    }
    assert malformed <= failed(report, "striped:2")
    levels = {d: {c["level"] for c in report["cases"] if c["device"] == d and c["outcome"] == "failed"}
              for d in ("striped:1", "striped:2")}  # fmt: skip
    assert {device: min(found) for device, found in levels.items()} == {"striped:1": 3, "striped:2": 5}


RAMP = np.arange(samples.N, dtype=np.float32)
SAMPLES = [
    (samples.increment(3.0), [RAMP]),
    (samples.double(), [RAMP]),
    (samples.halve_and_increment(), [RAMP]),
    (samples.total(), [RAMP, RAMP[::-1] * 3]),
    (samples.both_ends(100), [np.arange(5, 105, dtype=np.int32)]),
]


@pytest.mark.parametrize(("sample", "inputs"), SAMPLES)
def test_both_forms_of_a_sample_mean_the_same(sample, inputs):
    device = tile_hal.device("interp")
    out = function_of(sample).params[0]
    blank = np.zeros(out.elements, out.type.dtype.numpy)
    (expected,) = reference(function_of(sample), [blank, *inputs])

    class Striped:
        target = replace(device.target, codegen="stripe")

    kernel = kernel_of(Striped(), sample)
    assert kernel.function is None
    library = device.compiler.build(KernelList((kernel,), (), (), device.target))
    buffers = [device.memory.wrap(np.ascontiguousarray(a).view(np.uint8).data) for a in (blank, *inputs)]
    device.executor.prepare(library, 0).run(buffers).wait()
    np.testing.assert_array_equal(blank, expected)
    assert expected.any()


def test_interp_refuses_malformed_stripe():
    """Its semtree was always verified."""
    out = ir.Refinement(ir.Direction.OUT, "R", "R", (ir.Affine(),), ir.TensorType.row_major(DType.FLOAT32, (1,)))
    block = ir.Block("broken", refs=(out,), body=(ir.Store("R", "$nowhere"),))
    kernels = KernelList((Kernel("broken", block, None, (1, 1, 1)),), (), (), tile_hal.device("interp").target)
    for name in ("interp", "null"):
        with pytest.raises(TileDeviceError, match="'broken' does not verify"):
            tile_hal.device(name).compiler.build(kernels)
