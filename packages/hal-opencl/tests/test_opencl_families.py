"""Device settings, discovery and doctor, without a device."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest
from hal_opencl import binding
from hal_opencl.driver import OpenCLDriver, flushes
from hal_opencl.families import family_of, family_target, target_of, without_boxes, without_teams
from tile_ir.dtype import DType
from tile_ir.matrix import DPAS, WGMMA


def device(kind: str = "gpu", vendor: str = "Nobody", name: str = "Thing", platform: str = "Some OpenCL", version: str = "OpenCL 1.2",
           lanes: int = 1, units: int = 10, extensions: str = "", capability: tuple[int, int] = (0, 0)) -> binding.DeviceInfo:  # fmt: skip
    return binding.DeviceInfo(
        None, platform, version, vendor, name, "1.0", "OpenCL 1.2", kind, frozenset(extensions.split()), units, 512,
        (512, 512, 64), 32768, True, 8 << 30, 2 << 30, 1 << 20, 64, lanes, 128, False, 64,
        capability,
    )  # fmt: skip


PRODUCTS_OF_HALVES = "cl_khr_fp16 cl_intel_subgroup_matrix_multiply_accumulate"


@pytest.mark.parametrize(
    ("info", "family", "vector_bytes", "index_bits"),
    [
        (device("cpu", platform="Portable Computing Language", version="OpenCL 3.0 PoCL 3.0-rc2 Linux", lanes=16), "cpu-pocl", 32, 64),
        (device("cpu", platform="Portable Computing Language", version="OpenCL 3.0 PoCL 3.1+debian", lanes=16), "cpu-pocl", 64, 64),
        (device("cpu", platform="Portable Computing Language", version="OpenCL 3.0 PoCL 6.0", lanes=8), "cpu-pocl", 32, 64),
        (device("cpu", platform="Intel(R) OpenCL", lanes=16), "cpu-intel", 64, 64),
        (device("cpu", vendor="ARM"), "cpu-default", 16, 64),
        (device(vendor="NVIDIA Corporation", name="NVIDIA H200", platform="NVIDIA CUDA"), "gpu-nvidia", 16, 32),
        (device(vendor="Advanced Micro Devices, Inc.", name="gfx90a"), "gpu-amd", 16, 32),
        (device(vendor="Intel(R) Corporation"), "gpu-intel", 16, 32),
        (device(vendor="Apple"), "gpu-default", 16, 32),
        (device("accelerator"), "gpu-default", 16, 32),
        (device("custom", vendor=""), "gpu-default", 16, 32),
    ],
)  # fmt: skip
def test_families(info: binding.DeviceInfo, family: str, vector_bytes: int, index_bits: int) -> None:
    target = target_of(info)
    assert family_of(info) == family
    assert (target.settings.vector_bytes, target.settings.index_bits) == (vector_bytes, index_bits)
    assert target.settings.cores == 10 and target.settings.threads <= 512
    assert target.settings.max_mem <= 32768 or info.kind == "cpu"


NVIDIA = {"vendor": "NVIDIA Corporation", "name": "NVIDIA H200", "platform": "NVIDIA CUDA"}


SINGLE = "mma_m16n8k8_tf32", "mma_m16n8k16_bf16", "mma_m16n8k16_f16"
DOUBLES = {(8, 0): ("mma_m8n8k4_f64",), (9, 0): ("mma_m16n8k8_f64",), (8, 6): ()}


@pytest.mark.parametrize(
    ("info", "ptx"),
    [
        (device(**NVIDIA, capability=(9, 0)), True),
        (device(**NVIDIA, capability=(8, 0)), True),
        (device(**NVIDIA, capability=(8, 6)), True),
        (device(**NVIDIA, capability=(7, 5)), False),
        (device(**NVIDIA), False),
        (device(vendor="NVIDIA Corporation", platform="Portable Computing Language", capability=(9, 0)), False),
        (device("cpu", platform="Portable Computing Language"), False),
    ],
)  # fmt: skip
def test_matrix_instructions_are_the_devices_own(info: binding.DeviceInfo, ptx: bool) -> None:
    """PoCL on NVIDIA's hardware has the capability, but a compiler that takes no PTX."""
    target = target_of(info)
    assert info.ptx is ptx and target.nodes >= {"Round"}
    assert (target.nodes >= {"Mma", "MatrixLoad"}) is ptx
    single = tuple(name for name in target.matrix if name not in {i.name for i in WGMMA})
    assert single == ((*SINGLE, *DOUBLES[info.capability]) if ptx else ())
    assert not ptx or target.machine.subgroup == 32


def test_teams_of_sub_groups_multiply_where_the_device_may_have_them() -> None:
    target = target_of(device(**NVIDIA, capability=(9, 0)))
    names = {i.name for i in WGMMA}
    assert names <= set(target.matrix) and "TeamMma" in target.nodes
    assert (
        target.nodes - without_boxes(target).nodes == {"TensorCopy"} and without_boxes(target).matrix == target.matrix
    )
    rest = without_teams(target)
    assert names.isdisjoint(rest.matrix) and rest.matrix and {"TeamMma", "TensorCopy"}.isdisjoint(rest.nodes)
    assert names.isdisjoint(target_of(device(**NVIDIA, capability=(10, 0))).matrix)
    rates = {i.name: i.rate for i in target.machine.instructions}
    assert all(rates[i.name] == 8 / i.sides["n"] for i in WGMMA)


def test_a_device_that_refuses_the_question_has_no_capability() -> None:
    class Refusing:
        @property
        def compute_capability_major_nv(self) -> int:
            raise binding.cl_error("INVALID_VALUE")

    class Hopper:
        compute_capability_major_nv, compute_capability_minor_nv = 9, 0

    assert [binding._capability(raw) for raw in (Refusing(), object(), Hopper())] == [(0, 0), (0, 0), (9, 0)]


def test_every_document_is_used_and_valid() -> None:
    names = {Path(str(f)).stem for f in files("hal_opencl").joinpath("targets").iterdir()} - {"devices"}
    assert names == {family_of(i) for i in (
        device("cpu", platform="pocl"), device("cpu", platform="intel"), device("cpu"), device(vendor="NVIDIA"),
        device(vendor="AMD"), device(vendor="Intel"), device(),
    )}  # fmt: skip
    for name in names:
        assert family_target(name).codegen == "semtree" and family_target(name).passes


def test_doctor_lists_devices_and_what_they_have(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        binding.PlatformInfo("P", "v1", (device(extensions="cl_khr_fp64"),)),
        binding.PlatformInfo("Q", "v2", (), "broken"),
    ]
    monkeypatch.setattr(binding, "platforms", lambda: found)
    text = "\n".join(OpenCLDriver().doctor())
    assert "opencl:0 Thing" in text and "fp64" in text and "gpu-default" in text and "platform Q, v2: broken" in text
    assert "install" not in text


@pytest.mark.parametrize("found", [[], [binding.PlatformInfo("P", "v1", ())]])
def test_no_device_is_no_error_and_doctor_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, found: list[binding.PlatformInfo]
) -> None:
    monkeypatch.setattr(binding, "platforms", lambda: found)
    assert list(OpenCLDriver().device_sets()) == []
    text = "\n".join(OpenCLDriver().doctor())
    assert "pip install pocl-binary-distribution" in text and "apt-get install pocl-opencl-icd" in text


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_plugin_is_found_without_loading_opencl() -> None:
    code = "import sys, hal_opencl.plugin; print(hal_opencl.plugin.tile_hal_driver().name, 'pyopencl' in sys.modules)"
    assert run(code) == "opencl False\n"


def test_readme_example() -> None:
    if not any(p.devices for p in binding.platforms()):
        pytest.skip("no OpenCL device: pip install pocl-binary-distribution")
    text = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert "[0.0067" in run(example)


@pytest.mark.parametrize(
    ("capability", "fma", "items", "local"),
    [((9, 0), 4, 2048, 228), ((8, 9), 4, 1536, 100), ((8, 6), 4, 1536, 100), ((8, 0), 2, 2048, 164), ((7, 5), 2, 1024, 64), ((0, 0), 2, 1024, 64)],
)  # fmt: skip
def test_machines_of_one_vendor_differ_by_capability(
    capability: tuple[int, int], fma: int, items: int, local: int
) -> None:
    machine = target_of(device(**NVIDIA, capability=capability)).machine
    assert machine.occupancy is not None and machine.local is not None and machine.is_gpu
    assert (machine.ports.fma, machine.occupancy.items, machine.local.bytes >> 10) == (fma, items, local)


def test_a_machine_has_what_the_device_says() -> None:
    machine = target_of(replace(device(vendor="AMD", units=52), clock_mhz=2100)).machine
    family = family_target("gpu-amd").machine
    assert (machine.cores, machine.clock_ghz, machine.caches[-1].bytes) == (52, 2.1, family.caches[-1].bytes)
    assert machine.memory.all_cores.read == family.memory.all_cores.read / 2  # half the units
    assert machine.memory.one_core == family.memory.one_core and machine.caches[-1].shared == 52


def test_processors_have_the_register_file_of_their_settings() -> None:
    target = target_of(
        device("cpu", platform="Portable Computing Language", version="OpenCL 3.0 PoCL 3.1+debian", lanes=16)
    )
    assert (target.machine.vector.registers, target.machine.vector.bytes) == (32, 64) and not target.machine.is_gpu
    assert target.machine.clock_ghz == family_target("cpu-pocl").machine.clock_ghz


def test_a_device_without_subnormal_numbers_says_so() -> None:
    """They are optional in OpenCL; its bfloat16 is computed in float32."""
    assert flushes(device()) == frozenset()
    assert flushes(replace(device(), subnormals=False)) == {DType.FLOAT32, DType.BFLOAT16}


@pytest.mark.parametrize(
    ("extensions", "found"),
    [("", 0), (PRODUCTS_OF_HALVES, 2), (f"{PRODUCTS_OF_HALVES} cl_intel_subgroup_matrix_multiply_accumulate_tf32", 3)],
)
def test_extensions_say_which_a_device_has(extensions: str, found: int) -> None:
    target = target_of(
        device("gpu", platform="Intel(R) OpenCL Graphics", vendor="Intel(R) Corporation", extensions=extensions)
    )
    assert target.matrix == tuple(i.name for i in DPAS)[:found]
    assert ("Mma" in target.nodes) == bool(found)
