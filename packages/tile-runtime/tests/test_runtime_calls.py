"""Calling functions: every layout of NumPy array, every dtype, errors that name the argument, given outputs."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tile_runtime as tile
from tile_ir.dtype import DType

Array = np.ndarray[Any, Any]
DTYPES = [d.value for d in DType if d not in (DType.BOOL, DType.BFLOAT16)]


def _source() -> Array:
    return np.arange(24, dtype=np.float32).reshape(4, 6)


def _unaligned(a: Array) -> Array:
    raw = np.zeros(a.nbytes + 1, np.uint8)
    view = raw[1:].view(a.dtype).reshape(a.shape)
    view[...] = a
    return view


def _read_only(a: Array) -> Array:
    a = a.copy()
    a.flags.writeable = False
    return a


LAYOUTS = {
    "contiguous": lambda a: a,
    "fortran": np.asfortranarray,
    "transposed": lambda a: a.T,
    "strided": lambda a: a[::2, ::3],
    "negative strides": lambda a: a[::-1, ::-2],
    "broadcast": lambda a: np.broadcast_to(a[:1], (4, 6)),
    "read-only": _read_only,
    "big-endian": lambda a: a.astype(">f4"),
    "unaligned": _unaligned,
    "memmap-like subclass": lambda a: a.view(np.matrix),
    "zero-d": lambda a: np.array(3.5, np.float32),
    "empty": lambda a: a[:0],
    "empty inside": lambda a: a[:, :0],
    "size one": lambda a: a[:1, :1],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_arrays_of_any_layout(add: tile.Function, layout: str) -> None:
    a = LAYOUTS[layout](_source())
    before = a.copy()
    for _ in range(3):  # compiled, from the cache, at once
        got = add(a, a)
        np.testing.assert_array_equal(got, np.asarray(a + a, np.float32))
        assert type(got) is np.ndarray and got.dtype == np.float32 and got.flags.writeable
    np.testing.assert_array_equal(a, before)
    np.testing.assert_array_equal(add(tile.asarray(a), a).numpy(), np.asarray(a + a, np.float32))


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes_stay(add: tile.Function, dtype: str) -> None:
    a = np.array([1, 2, 100], dtype)
    got = add(a, a)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, a + a)


def test_bool_and_bfloat16(add: tile.Function) -> None:
    both = tile.Function("function (A, B) -> (C) { C = A & B; }")
    a, b = np.array([True, True, False]), np.array([True, False, False])
    got = both(a, b)
    assert got.dtype == np.bool_
    np.testing.assert_array_equal(got, a & b)
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = np.arange(12).astype(ml_dtypes.bfloat16).reshape(3, 4)
    for value in (x, x.T, x[:, ::2], _unaligned(x)):
        for _ in range(2):
            got = add(value, value)
            assert got.dtype == ml_dtypes.bfloat16
            np.testing.assert_array_equal(got, value + value)
    out = np.empty((3, 4), ml_dtypes.bfloat16)
    assert add(x, x, out=out) is out
    np.testing.assert_array_equal(out, x + x)
    np.testing.assert_array_equal(tile.asarray(x).numpy(), x)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (True, "bool"), (3, "int32"), (2.5, "float32"), ([1, 2], "int32"), ([[1.0], [2.0]], "float32"), ([1, 2.5], "float32"),
        ((True, False), "bool"), ([], "float32"), ([np.float64(1)], "float64"), (np.float16(2), "float16"), (np.int64(7), "int64"),
    ],
)  # fmt: skip
def test_python_values(value: Any, dtype: str) -> None:
    keep = tile.Function("function (A) -> (C) { C = A == A; D = A; }".replace("(C)", "(D)"))
    got = keep(value)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, np.asarray(value))
    assert tile.eval_shape(keep, value) == (got.shape, DType(dtype))


def test_several_outputs_are_a_tuple_in_header_order() -> None:
    both = tile.Function("function (A) -> (S, P, A2) { P = A * A; S = A + A; A2 = S; }")
    a = np.arange(5, dtype=np.float32)
    got = both(a)
    assert isinstance(got, tuple)
    for x, y in zip(got, (a + a, a * a, a + a), strict=True):
        np.testing.assert_array_equal(x, y)
    mine = np.zeros(5, np.float32)
    s, p, _ = both(a, out=(None, mine, None))
    assert p is mine
    np.testing.assert_array_equal(p, a * a)
    np.testing.assert_array_equal(s, a + a)


@pytest.mark.parametrize("device", ["interp", "llvm"])
def test_an_input_may_be_an_output(device: str) -> None:
    same = tile.Function("function (A) -> (A2, B) { A2 = A; B = A * 2; }")
    a = np.arange(3, dtype=np.float32)
    got = same(a, device=device)
    np.testing.assert_array_equal(got[0], a)
    np.testing.assert_array_equal(got[1], a * 2)
    assert not np.shares_memory(got[0], a)


BAD_CALLS: list[tuple[str, Any]] = [
    ("misses input 'B'", lambda f, a: f(a)),
    ("takes 2 inputs \\(A, B\\), 3 were given", lambda f, a: f(a, a, a)),
    ("no input 'Q'", lambda f, a: f(a, Q=a)),
    ("did you mean 'B'", lambda f, a: f(a, BB=a)),
    ("input 'A' twice", lambda f, a: f(a, A=a)),
    ("'A'.*complex128", lambda f, a: f(a.astype(complex), a)),
    ("'B' cannot be made an array", lambda f, a: f(a, [[1, 2], [3]])),
    ("'B' is neither an array", lambda f, a: f(a, "text")),
    ("'B' holds an integer beyond int32", lambda f, a: f(a, 2**40)),
    ("'B'.*int32", lambda f, a: f(a, [2**40])),
    ("B", lambda f, a: f(a, a[0])),
    ("B", lambda f, a: f(a, a[:1])),
    ("no device 'nonesuch'", lambda f, a: f(a, a, device="nonesuch")),
    ("no device 'llvm:99'", lambda f, a: f(a, a, device="llvm:99")),
    ("no input 'Z'", lambda f, a: f(a, a, donate="Z")),
    ("not by int 3", lambda f, a: f(a, a, device=3)),
]  # fmt: skip


@pytest.mark.parametrize(("message", "call"), BAD_CALLS, ids=[m for m, _ in BAD_CALLS])
def test_errors_name_the_argument(matmul: tile.Function, message: str, call: Any) -> None:
    with pytest.raises(tile.TileError, match=message) as error:
        call(matmul, np.zeros((3, 3), np.float32))
    assert error.value.diagnostics and error.value.diagnostics[0].code.startswith("TILE-E")


def test_a_shape_that_does_not_fit_names_the_input_and_its_place(matmul: tile.Function) -> None:
    a = np.zeros((2, 3), np.float32)
    with pytest.raises(tile.TileTypeError) as error:
        matmul(a, a)
    text = str(error.value)
    assert "'B'" in text or "B[" in text
    assert error.value.diagnostics[0].span is not None


BAD_OUTPUTS: list[tuple[str, Any]] = [
    ("output 'C' is float32\\[3, 3\\].*float32\\[3, 2\\]", lambda a: np.zeros((3, 2), np.float32)),
    ("output 'C'.*float64", lambda a: np.zeros((3, 3))),
    ("output 'C' is read-only", lambda a: _read_only(a)),
    ("output 'C' overlaps input 'A'", lambda a: a),
    ("output 'C' overlaps input 'A'", lambda a: a[::-1]),
    ("output 'C' needs a NumPy array", lambda a: [[0.0] * 3] * 3),
    ("1 result \\(C\\), out has 2", lambda a: (a.copy(), a.copy())),
    ("output 'C' is on device interp:0", lambda a: tile.Tensor("interp", (3, 3), "float32")),
]  # fmt: skip


@pytest.mark.parametrize(("message", "make"), BAD_OUTPUTS, ids=[str(k) for k in range(len(BAD_OUTPUTS))])
def test_bad_outputs_change_nothing(matmul: tile.Function, message: str, make: Any) -> None:
    a = np.arange(9, dtype=np.float32).reshape(3, 3)
    before, out = a.copy(), make(a)
    out = [out] if isinstance(out, list) else out
    with pytest.raises(tile.TileError, match=message):
        matmul(a, np.eye(3, dtype=np.float32), out=out)
    np.testing.assert_array_equal(a, before)


def _aligned(shape: tuple[int, ...]) -> Array:
    raw = np.zeros(int(np.prod(shape)) * 4 + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + int(np.prod(shape)) * 4].view(np.float32).reshape(shape)


@pytest.mark.parametrize(
    "make",
    [
        lambda: _aligned((3, 4)),
        lambda: _unaligned(np.zeros((3, 4), np.float32)),
        lambda: np.zeros((4, 3), np.float32).T,
        lambda: np.zeros((6, 8), np.float32)[::-2, ::2],
        lambda: np.zeros((3, 4), ">f4"),
    ],
    ids=["aligned", "unaligned", "transposed", "strided", "big-endian"],
)
def test_given_outputs_of_any_layout(matmul: tile.Function, make: Any) -> None:
    a, b = np.random.default_rng(1).random((2, 3, 4), np.float32), np.eye(4, dtype=np.float32)
    out = make()
    assert matmul(a[0], b, out=out) is out
    np.testing.assert_array_equal(out, a[0])
    assert matmul(a[1], b, out=[out]) is out
    np.testing.assert_array_equal(out, a[1])


@pytest.mark.parametrize("offset", [0, 4, 8])
def test_kernels_write_what_numpy_allocates_in_place(
    matmul: tile.Function, monkeypatch: pytest.MonkeyPatch, offset: int
) -> None:
    """Arrays that start on 16 bytes; nothing else is allocated."""
    a, out = np.eye(3, dtype=np.float32), _aligned((5, 4)).reshape(-1)[offset : offset + 9].reshape(3, 3)
    matmul(a, a, out=out)

    def refuse(*_: Any) -> Any:
        raise AssertionError("the result is not written in place")

    monkeypatch.setattr(type(matmul.lower(a, a).device.memory), "allocate", refuse)
    assert matmul(a, 2 * a, out=out) is out
    np.testing.assert_array_equal(out, 2 * a)


def test_interleaved_memory_is_no_overlap(add: tile.Function) -> None:
    both = np.zeros((2, 5), np.float32).T
    both[:, 0] = np.arange(5)
    add(both[:, 0], both[:, 0], out=both[:, 1])
    np.testing.assert_array_equal(both[:, 1], 2 * np.arange(5))


def test_a_donated_input_may_be_overwritten() -> None:
    blur = tile.Function("function (A[N]) -> (B) { B[i : N] = +(A[i + j - 1]), j < 3; }")
    a = np.arange(40, dtype=np.float32)
    want = blur(a)
    for make in (lambda: a.copy(), lambda: tile.asarray(a)):
        x = make()
        assert blur(x, out=x, donate="A") is x
        np.testing.assert_array_equal(np.asarray(x), want)
    assert blur(a, donate=("A",)) is not a


def test_tensors_and_arrays_mix_in_given_outputs(add: tile.Function) -> None:
    a = np.arange(4, dtype=np.float32)
    tensor, array = tile.Tensor("llvm", (4,), "float32"), np.zeros(4, np.float32)
    assert add(a, a, out=tensor) is tensor
    np.testing.assert_array_equal(tensor.numpy(), a + a)
    assert add(tensor, a, out=array) is array
    np.testing.assert_array_equal(array, 3 * a)


def test_the_package_goes_to_other_processes_by_name() -> None:
    """As cloudpickle, and so dask, sends what a function of the user's names."""
    assert pickle.loads(pickle.dumps(tile)) is tile


def test_functions_pickle_and_copy_by_source(tmp_path: Path, matmul: tile.Function) -> None:
    a = np.arange(4, dtype=np.float32).reshape(2, 2)
    matmul(a, a)
    for twin in (pickle.loads(pickle.dumps(matmul)), copy.deepcopy(matmul)):
        np.testing.assert_array_equal(twin(a, a), a @ a)
        assert (twin.inputs, twin.outputs, str(twin)) == (matmul.inputs, matmul.outputs, matmul.source)
    file = tmp_path / "double.tile"
    file.write_text("function (A) -> (B) { B = A + A; }", encoding="utf-8")
    double = pickle.loads(pickle.dumps(tile.Function.from_file(file)))
    assert double.name == "double"
    np.testing.assert_array_equal(double(a), a + a)
    file.write_bytes(b"function (A) -> (B) { B = \xff; }")
    with pytest.raises(tile.TileSyntaxError, match=r"double\.tile"):
        tile.Function.from_file(file)
    file.write_text("function (A) -> (B) { B = A +; }", encoding="utf-8")
    with pytest.raises(tile.TileSyntaxError, match=r"double\.tile:1:"):
        tile.Function.from_file(str(file))


def test_equal_sources_share_compiled_code(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluator = tile.Evaluator("interp")
    a = np.zeros(3, np.float32)
    for _ in range(3):
        evaluator(tile.Function("function (A) -> (B) { B = A - 1; }"), a)
    assert len(evaluator.programs) == 1


def test_eval_shape_compiles_nothing(matmul: tile.Function) -> None:
    x = tile.placeholder("float16", (1 << 20, 3), name="x")
    got = tile.eval_shape(matmul, x, np.zeros((3, 1 << 20), np.float16))
    assert got.shape == (1 << 20, 1 << 20) and str(got.dtype) == "float16"
    with pytest.raises(tile.TileTypeError, match="misses input 'B'"):
        tile.eval_shape(matmul, x)


def test_device_of_the_environment(add: tile.Function, monkeypatch: pytest.MonkeyPatch) -> None:
    a = np.ones(3, np.float32)
    monkeypatch.setenv("TILE_DEVICE", "null")
    with pytest.raises(tile.TileDeviceError, match="only compiles"):
        add(a, a)
    np.testing.assert_array_equal(add(a, a, device="interp"), a + a)
    np.testing.assert_array_equal(add(tile.asarray(a, "llvm"), a).numpy(), a + a)
    monkeypatch.setenv("TILE_DEVICE", "interp:0")
    np.testing.assert_array_equal(add(a, a), a + a)


def test_the_null_device_compiles_and_shows(matmul: tile.Function) -> None:
    a = np.zeros((2, 2), np.float32)
    lowered = matmul.lower(a, a, device="null")
    assert "kernel" in str(lowered.stripe) and lowered.kernels.steps
    assert tile.eval_shape(matmul, a, a).shape == (2, 2)


def test_missing_dtypes_are_named_before_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    device = tile.device("interp")
    fewer = replace(device.capabilities, dtypes=device.capabilities.dtypes - {DType.FLOAT64})
    monkeypatch.setattr(device, "capabilities", fewer)
    wide = tile.Function("function (A) -> (C) {\n    B = as_float(A, 64);\n    C = as_float(B, 32);\n}")
    with pytest.raises(tile.TileDeviceError, match=r"(?s)<tile>:2:.*tensor 'B' is float64.*interp:0"):
        wide(np.ones(2, np.float32), device=device)
    with pytest.raises(tile.TileDeviceError, match=r"(?s)<tile>:1:11.*tensor 'A' is float64.*interp:0"):
        wide(np.ones(2), device=device)


def test_evaluators_and_invokers(matmul: tile.Function) -> None:
    a = np.arange(4, dtype=np.float32).reshape(2, 2)
    for device in ("interp", "llvm", tile.device("llvm")):
        evaluator = tile.Evaluator(device, fast_math=True, tile_trials=1)
        np.testing.assert_array_equal(evaluator(matmul, a, B=a), a @ a)
        assert evaluator.lower(matmul, a, a).kernels.target.options.fast_math
    with pytest.raises(tile.TileTypeError, match="tile_trials"):
        tile.Evaluator("interp", tile_trials=0)
    invoker = tile.Invoker(matmul).set_input("A", a).set_inputs({"B": a})
    np.testing.assert_array_equal(invoker.invoke(), a @ a)
    out = tile.Tensor("llvm", (2, 2), "float32")
    assert invoker.set_input("A", tile.asarray(2 * a, "llvm")).set_output("C", out).invoke() is out
    np.testing.assert_array_equal(out.numpy(), 2 * a @ a)
    with pytest.raises(tile.TileTypeError, match="no input 'X'"):
        invoker.set_input("X", a)
    with pytest.raises(tile.TileTypeError, match=r"no output 'X'.*\n.*its outputs are C"):
        invoker.set_output("X", a)
    with pytest.raises(tile.TileTypeError, match="misses input 'A', 'B'"):
        tile.Invoker(matmul, device="interp").invoke()


def test_lowered_stages(matmul: tile.Function) -> None:
    x = tile.placeholder("float32", (16, 16), "x")
    lowered = matmul.lower(x, np.zeros((16, 16), np.float32), device="llvm")
    assert lowered.program.outputs[0][0] == "C"
    assert "program" in str(lowered.stripe) and str(lowered.stripe_after("initial")) != str(lowered.stripe)
    assert "define" in lowered.source and len(lowered.asm) > 100
    assert "operations" in lowered.explain()
    assert lowered.kernels.kernels
    with pytest.raises(tile.TileTypeError, match=r"(?s)no pass 'nonesuch'.*schedule_kernels"):
        lowered.stripe_after("nonesuch")


def test_the_program_cache_is_bounded(add: tile.Function) -> None:
    evaluator = tile.Evaluator("interp")
    evaluator.programs.limit = 3
    keep = np.zeros(1, np.float32)
    evaluator(add, keep, keep)
    for n in range(2, 7):
        evaluator(add, np.zeros(n, np.float32), np.zeros(n, np.float32))
        evaluator(add, keep, keep)
        assert len(evaluator.programs) <= 3
    assert evaluator.programs.find((add.key, *[(keep.dtype, keep.shape)] * 2)) is not None


def test_failing_compilations_leave_no_trace(matmul: tile.Function) -> None:
    evaluator = tile.Evaluator("interp")
    for _ in range(2):
        with pytest.raises(tile.TileTypeError):
            evaluator(matmul, np.zeros((2, 3), np.float32), np.zeros((2, 3), np.float32))
    assert len(evaluator.programs) == 0
