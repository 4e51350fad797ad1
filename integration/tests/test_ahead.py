"""Functions built ahead of time: what C programs get is what calls from Python get, and misuse is refused."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tile_runtime as tile
from stack import ROOT
from tile_hal.ahead import C_TYPES, Status
from tile_ir.dtype import from_numpy

pytestmark = pytest.mark.skipif(
    "llvm:0" not in [d.id for d in tile.devices()], reason="the llvm device is not installed"
)
needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler (cc)")
RNG = np.random.default_rng(5)


def call(path: Path, name: str, inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
    """The status of a C function of these arrays and numbers."""
    arguments: list[Any] = []
    for value in inputs:
        array = np.asarray(value)
        if array.ndim:
            arguments.append(array.ctypes.data_as(ctypes.c_void_p))
        else:
            arguments.append(_C[C_TYPES[from_numpy(array.dtype)]](array.view(_bits(array.dtype)).item()))
    arguments += [array.ctypes.data_as(ctypes.c_void_p) for array in outputs]
    return ctypes.CDLL(str(path))[name](*arguments)


_C: dict[str, Any] = {
    "float": ctypes.c_float, "double": ctypes.c_double,
    **{f"{kind}{bits}_t": getattr(ctypes, f"c_{kind}{bits}") for kind in ("int", "uint") for bits in (8, 16, 32, 64)},
}  # fmt: skip


def _bits(dtype: np.dtype[Any]) -> Any:
    return {np.dtype(np.float16): np.uint16, np.dtype(np.bool_): np.uint8}.get(dtype, dtype)


def built(folder: Path, function: Any, *inputs: Any, **options: Any) -> list[np.ndarray[Any, Any]]:
    """Results of the library of a function."""
    shapes = tile.eval_shape(function, *inputs)
    several = [shapes] if hasattr(shapes, "dtype") else list(shapes)
    outputs = [np.full(s.shape, 77, s.dtype.numpy) for s in several]
    made = tile.build(function, *inputs, output=folder / "libit.so", device="llvm", **options)
    assert call(made.files[0], made.name, inputs, outputs) == Status.OK
    return outputs


def check(folder: Path, function: Any, *inputs: Any, **options: Any) -> None:
    """The same bits as a call from Python."""
    wanted = function(*inputs, device="llvm")
    several = wanted if isinstance(wanted, tuple) else (wanted,)
    for got, want in zip(built(folder, function, *inputs, **options), several, strict=True):
        np.testing.assert_array_equal(got, want)


SOFTMAX = "function (X[N, M]) -> (Y) { T[i : N] = >(X[i, j]); E = exp(X - reshape(T, N, 1)); S[i : N] = +(E[i, j]); Y = E / reshape(S, N, 1); }"


@needs_cc
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "float32", "float64"])
def test_numbers_go_by_value_and_arrays_by_pointer(tmp_path: Path, dtype: str) -> None:
    number, array = np.asarray(3).astype(dtype)[()], RNG.integers(0, 9, (3, 5)).astype(dtype)
    check(tmp_path, tile.Function("function (N, A) -> (B, C) { B = A * N; C = A == N; }"), number, array)


@needs_cc
def test_intermediate_results_and_the_library_of_c(tmp_path: Path) -> None:
    check(tmp_path, tile.Function(SOFTMAX), RNG.standard_normal((37, 53)))


@needs_cc
def test_empty_arrays_and_inputs_that_nothing_reads(tmp_path: Path) -> None:
    check(tmp_path, tile.Function("function (A, B) -> (C) { C = A + 1; }"), np.zeros((0, 4), "f"), np.zeros(3, "f"))


MATMUL = tile.Function(
    "function (A[M, L], B[L, N]) -> (C) { C[i, j : M, N] = +(A[i, k] * B[k, j]); }", name="mat mul.tile"
)
RELU = tile.Function("function (X) -> (Y) { Y = (X > 0 ? X : 0); }")


def _network() -> tuple[Any, np.ndarray[Any, Any]]:
    """Two layers, one of a constant and one of a bound Tensor: both are packed."""
    x = tile.placeholder("float32", (32, 96), "switch")
    first = RNG.standard_normal((96, 64)).astype("f")
    second = tile.asarray(RNG.standard_normal((64, 80)).astype("f"), "llvm")
    return tile.compose([x], {"class": MATMUL(RELU(MATMUL(x, first)), second)}), RNG.random((32, 96), np.float32)


@needs_cc
@pytest.mark.parametrize("options", [{}, {"target": "baseline"}, {"threads": 3}], ids=str)
def test_constants_and_bound_tensors_are_in_the_library(tmp_path: Path, options: dict[str, Any]) -> None:
    network, x = _network()
    (got,) = built(tmp_path, network, x, **options)
    np.testing.assert_allclose(got, network(x), rtol=1e-4, atol=1e-3)


@needs_cc
def test_kernels_that_take_long_are_shared(tmp_path: Path) -> None:
    a, b = RNG.random((200, 160), np.float32), RNG.random((160, 240), np.float32)
    (got,) = built(tmp_path, MATMUL, a, b, threads=3)
    np.testing.assert_allclose(got, a @ b, rtol=1e-4)


@needs_cc
def test_loops_go_round_in_the_library(tmp_path: Path) -> None:
    start, rows = (tile.placeholder("float32", shape, "X") for shape in ((9,), (7, 9)))
    blend = tile.Function("function (A, X) -> (B) { B = 0.9 * A + 0.1 * X; }")

    def smooth(average: Any, row: Any) -> Any:
        average = blend(average, row)
        return average, average

    last, averages = tile.scan(smooth, start, rows)
    check(
        tmp_path,
        tile.compose([start, rows], [last, averages]),
        RNG.random(9, np.float32),
        RNG.random((7, 9), np.float32),
    )


MAIN = r"""
#include <stdio.h>
#include "mat_mul.h"
#include "composition.h"

int main(void) {
    static float a[6] = {1, 2, 3, 4, 5, 6}, b[6] = {1, 0, 0, 1, 1, 1};
    static float c[4] __attribute__((aligned(16))), x[32 * 96], y[32 * 80] __attribute__((aligned(16)));
    int32_t status = mat_mul(a, b, c) | composition(x, y);
    printf("%d %d %g %g %g %g %g\n", status, mat_mul_abi() == MAT_MUL_ABI, c[0], c[1], c[2], c[3], y[7]);
    printf("%d %d %d\n", mat_mul(NULL, b, c), mat_mul(a, b, (float *)((char *)c + 4)), mat_mul(c, b, c));
    mat_mul_release();
    composition_release();
    return status;
}
"""


@needs_cc
def test_a_c_program_with_two_static_libraries(tmp_path: Path) -> None:
    tile.build(
        MATMUL,
        np.zeros((2, 3), "f"),
        np.zeros((3, 2), "f"),
        output=tmp_path / "one.a",
        header=tmp_path / "mat_mul.h",
        device="llvm",
    )
    network, x = _network()
    tile.build(network, x, output=tmp_path / "two.a", header=tmp_path / "composition.h", device="llvm")
    (tmp_path / "main.c").write_text(MAIN)
    command = ["cc", "-Wall", "-Werror", "main.c", "one.a", "two.a", "-lm", "-lpthread", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True)
    said = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True).stdout
    assert said == "0 1 4 5 10 11 0\n2 3 4\n"


@needs_cc
def test_functions_of_arrays_are_built_for_the_leaves_of_their_arguments(tmp_path: Path) -> None:
    @tile.jit(static="times")
    def layer(weights: dict[str, Any], x: Any, times: int) -> Any:
        return x @ weights["w"] * times + weights["b"]

    w, b, x = RNG.random((3, 2), np.float32), RNG.random(2, np.float32), RNG.random((4, 3), np.float32)
    made = tile.build(layer, {"w": w, "b": b}, x, times=2, output=tmp_path / "liblayer.so", device="llvm")
    out = np.empty((4, 2), np.float32)
    assert made.name == "layer"
    assert call(made.files[0], made.name, (w, b, x), (out,)) == Status.OK
    np.testing.assert_array_equal(out, layer({"w": w, "b": b}, x, 2))


@needs_cc
def test_the_page_says_what_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "ahead-of-time.md").read_text("utf-8")
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(block, "docs/ahead-of-time.md", "exec"), names)
    (program,) = re.findall(r"```c\n(.*?)```", text, re.DOTALL)
    Path("main.c").write_text(program)
    subprocess.run(["cc", "-Wall", "-Werror", "main.c", "./libblur.so", "-o", "main"], check=True)
    subprocess.run(["./main"], check=True)


def _refusal(**options: Any) -> str:
    function = options.pop("function", RELU)
    with pytest.raises(tile.TileError) as caught:
        tile.build(function, np.zeros(4, "f"), **{"output": "x.a", "device": "llvm", **options})
    return str(caught.value)


def test_what_cannot_be_built_is_refused_before_anything_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "TILE-E525" in _refusal(output="x.obj") and "no name of a C function" in _refusal(name="a b")
    assert "its targets are host, baseline" in _refusal(target="pdp-11")
    assert "TILE-E526" in _refusal(device="interp")
    assert "threads is an integer of at least 1" in _refusal(threads=0)
    weights = tile.asarray(np.zeros(4, "f"), "llvm")
    x = tile.placeholder("float32", (4,), "X")
    updating = tile.compose([x], [x * weights], updates=[(weights, x + weights)])
    assert "updates tensors" in _refusal(function=updating)
    monkeypatch.setenv("CC", "no-such-compiler")
    assert "ends in .a" in _refusal(output="x.so")


def test_sources_for_opencl(tmp_path: Path) -> None:
    if "opencl:0" not in [d.id for d in tile.devices()] or shutil.which("cc") is None:
        pytest.skip("there is no OpenCL device, or no C compiler (cc)")
    network, x = _network()
    loader = next(iter(_opencl_loader()), None)
    if loader is None:
        pytest.skip("there is no libOpenCL beside pyopencl")
    names = {t: tile.asarray(v.numpy(), "opencl") for t, v in network.bound.items()}
    made = tile.build(network.binding(names), x, output=tmp_path / "net.cl", device="opencl", header=tmp_path / "net.h")
    assert [f.suffix for f in made.files] == [".cl", ".c", ".json", ".h"]
    headers = Path(__file__).parent / "opencl_header"
    command = ["cc", "-Wall", "-Werror", f"-I{headers}", "-shared", "-fPIC", "net.c", "-o", "libnet.so", str(loader)]
    subprocess.run([*command, "-lpthread", f"-Wl,-rpath,{loader.parent}"], cwd=tmp_path, check=True)
    out = np.empty((32, 80), np.float32)
    assert call(tmp_path / "libnet.so", made.name, [x], [out]) == Status.OK
    np.testing.assert_allclose(out, network(x), rtol=1e-4, atol=1e-3)


def _opencl_loader() -> list[Path]:
    import pyopencl

    folder = Path(pyopencl.__file__).parent
    return [p for place in (folder / ".libs", folder.parent / "pyopencl.libs") for p in place.glob("libOpenCL*.so*")]
