"""Programs built for 64-bit ARM, run here by QEMU (Debian packages qemu-user and gcc-aarch64-linux-gnu): nightly."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tile_runtime as tile
from tile_hal.ahead import C_TYPES
from tile_ir.dtype import from_numpy
from tile_lang.examples import TUTORIAL, Example

TARGET, CC, QEMU = "aarch64-linux", "aarch64-linux-gnu-gcc", "qemu-aarch64"


def has_target() -> bool:
    """Whether the llvm device is here, on another architecture."""
    exporter = tile.device("llvm").exporter if "llvm:0" in [d.id for d in tile.devices()] else None
    return exporter is not None and TARGET in exporter.targets


emulated = pytest.mark.skipif(
    not (shutil.which(CC) and shutil.which(QEMU)), reason="apt-get install qemu-user gcc-aarch64-linux-gnu"
)
pytestmark = pytest.mark.skipif(not has_target(), reason="no llvm device of another architecture is here")

RNG = np.random.default_rng(11)
MATMUL = "function (A[M, L], B[L, N]) -> (C) { C[i, j : M, N] = +(A[i, k] * B[k, j]); }"
SOFTMAX = (
    "function (X[N, M]) -> (S) { L[n, 0 : N, 1] = >(X[n, m]); E = exp(X - L); T[n, 0 : N, 1] = +(E[n, m]); S = E / T; }"
)
MATHS = "function (X) -> (A, B, C, D, E) { A = sin(X) + cos(X); B = log(X * X + 1); C = tanh(X); D = pow(abs(X), 0.3); E = erf(X); }"
WHOLE = "function (X[N], I[K]) -> (A, B, C, D) { A = X / 3 + (X << 2); B = gather(X, I); C = cumsum(X, 0); D = sort(X, 0); }"
CONV = "function (D[N, X, Y, C], K[I, J, C, O]) -> (R) { R[n, x, y, o : N, X, Y, O] = +(D[n, x + i - 1, y + j - 1, c] * K[i, j, c, o]); }"
DRAWN = "function (S) -> (V, T) { P = prng_step(S, 500); V = prng_value(P); T = prng_state(P); }"


def floats(*shape: int, dtype: str = "float32") -> np.ndarray[Any, Any]:
    return (RNG.random(shape) * 4 - 2).astype(dtype)


CASES: Mapping[str, tuple[str, Sequence[Any]]] = {
    "matmul": (MATMUL, (floats(70, 33), floats(33, 51))),
    "large matmul": (MATMUL, (floats(160, 144), floats(144, 192))),
    "matmul of float64": (MATMUL, (floats(17, 9, dtype="float64"), floats(9, 21, dtype="float64"))),
    "matmul of float16": (MATMUL, (floats(17, 9, dtype="float16"), floats(9, 21, dtype="float16"))),
    "matmul of int8": (MATMUL, tuple(RNG.integers(-9, 9, s).astype(np.int8) for s in ((20, 31), (31, 8)))),
    "softmax": (SOFTMAX, (floats(13, 100),)),
    "mathematics": (MATHS, (floats(333),)),
    "whole numbers": (WHOLE, (RNG.integers(-99, 99, 77).astype(np.int32), np.array([5, 0, 76, 200], np.int64))),
    "convolution": (CONV, (floats(1, 14, 15, 5), floats(3, 3, 5, 7))),
    "random numbers": (DRAWN, (RNG.integers(0, 1 << 32, (3, 2048), np.uint32),)),
}


def main_c(name: str, inputs: Sequence[np.ndarray[Any, Any]], outputs: Sequence[np.ndarray[Any, Any]]) -> str:
    """A program that reads all inputs from one file, calls the function, and writes all outputs to another."""
    arrays = [*inputs, *outputs]
    kinds = [C_TYPES[from_numpy(a.dtype)] for a in arrays]
    buffers = [
        f"static {kind} a{k}[{max(1, a.size)}] __attribute__((aligned(64)));"
        for k, (kind, a) in enumerate(zip(kinds, arrays, strict=True))
    ]
    passed = ", ".join(f"a{k}" if a.ndim else f"a{k}[0]" for k, a in enumerate(inputs))
    results = ", ".join(f"a{len(inputs) + k}" for k in range(len(outputs)))
    reads = " ".join(f"fread(a{k}, 1, {a.nbytes}, in);" for k, a in enumerate(inputs))
    writes = " ".join(f"fwrite(a{len(inputs) + k}, 1, {a.nbytes}, out);" for k, a in enumerate(outputs))
    call = f"{name}({', '.join(x for x in (passed, results) if x)})"
    return "\n".join([
        "#include <stdio.h>", '#include "it.h"', *buffers,
        'int main(int n, char **file) { FILE *in = fopen(file[1], "rb"), *out = fopen(file[2], "wb");',
        f"{reads} int status = {call}; if (status) return status; {writes} fclose(out); return 0; }}",
    ])  # fmt: skip


def on_arm(
    folder: Path, function: tile.Function, inputs: Sequence[np.ndarray[Any, Any]], threads: int
) -> list[np.ndarray[Any, Any]]:
    """The results of a function on the emulated processor."""
    shapes = tile.eval_shape(function, *inputs)
    outputs = [np.zeros(s.shape, s.dtype.numpy) for s in ([shapes] if hasattr(shapes, "dtype") else shapes)]  # type: ignore[union-attr]
    tile.build(
        function, *inputs, output=folder / "libit.a", header=folder / "it.h", name="it", target=TARGET, threads=threads, device="llvm"
    )  # fmt: skip
    (folder / "main.c").write_text(main_c("it", inputs, outputs))
    (folder / "in").write_bytes(b"".join(np.ascontiguousarray(a).tobytes() for a in inputs))
    subprocess.run([CC, "-O1", "-static", "-o", "it", "main.c", "libit.a", "-lm", "-lpthread"], cwd=folder, check=True)
    subprocess.run([QEMU, "./it", "in", "out"], cwd=folder, check=True, timeout=120)
    data, found = (folder / "out").read_bytes(), list[np.ndarray[Any, Any]]()
    for output in outputs:
        found.append(np.frombuffer(data[: output.nbytes], output.dtype).reshape(output.shape))
        data = data[output.nbytes :]
    return found


def compare(found: Sequence[Any], expected: Any) -> None:
    wanted = expected if isinstance(expected, tuple) else (expected,)
    for mine, other in zip(found, wanted, strict=True):
        if mine.dtype.kind == "f":
            np.testing.assert_allclose(mine, other, rtol=2e-3 if mine.itemsize == 2 else 1e-5, atol=1e-5)
        else:
            np.testing.assert_array_equal(mine, other)


@pytest.mark.slow
@emulated
@pytest.mark.parametrize("case", CASES)
def test_results_are_those_of_this_machine(tmp_path: Path, case: str) -> None:
    source, inputs = CASES[case]
    function = tile.Function(source)
    compare(on_arm(tmp_path, function, inputs, threads=2), function(*inputs, device="llvm"))


@pytest.mark.slow
@emulated
@pytest.mark.parametrize("example", TUTORIAL, ids=lambda e: e.name)
def test_the_tutorial(tmp_path: Path, example: Example) -> None:
    inputs = example.inputs()
    found = on_arm(tmp_path, tile.Function(example.source), [*inputs.values()], threads=1)
    compare(found, example.expected(inputs)[example.output])


def test_a_library_for_another_processor_is_built_here(tmp_path: Path) -> None:
    """And has code for it; who runs it is the nightly session."""
    a = floats(8, 8)
    made = tile.build(tile.Function(MATMUL), a, a, output=tmp_path / "libit.a", name="it", target=TARGET, device="llvm")
    code = made.files[0].read_bytes()
    assert made.target == TARGET and code.count(b"\x7fELF\x02\x01\x01") >= 2
    at = code.index(b"\x7fELF")
    assert int.from_bytes(code[at + 18 : at + 20], "little") == 183, "EM_AARCH64"
