"""Programs of which a device lacks something: refused by default, run in parts with a fallback."""

from __future__ import annotations

import itertools
import warnings
from dataclasses import replace

import numpy as np
import pytest
import tile_lang
import tile_runtime as tile
from tile_hal.builtin.interp import InterpCompiler, InterpExecutor
from tile_hal.errors import Code, device_error
from tile_hal.host import HostDevice
from tile_hal.interfaces import Device
from tile_ir.diagnostics import TileDeviceError, TileFallbackWarning, TilePlanError
from tile_ir.dtype import DType
from tile_ir.program.nodes import TensorType
from tile_ir.semtree.printer import print_function
from tile_runtime.programs.division import divide

MIXED = tile.Function("""
function (A[N]) -> (B, R, C) {
    B = A + 1;
    D = as_float(B, 64);
    E = D * D;
    S[] = +(E[i]);
    R = as_float(S, 32) * B;
    C = A;
}""")
A = np.arange(5, dtype=np.float32)


class NoExp(InterpCompiler):
    """Refuses kernels with an exponential function."""

    def build(self, kernels):
        for kernel in kernels.kernels:
            if "exp(" in print_function(kernel.function):
                raise device_error(Code.BUILD, f"no exp in {kernel.name!r}")
        return super().build(kernels)


def poor(compiler: type[InterpCompiler] = InterpCompiler, *without: DType) -> Device:
    """The interpreter's device, that can do less."""
    like = tile.device("interp")
    able = replace(like.capabilities, dtypes=like.capabilities.dtypes - set(without), loads_outlines=False)
    return HostDevice("poor:0", "Poor", like.target, able, compiler(like.target.nodes), InterpExecutor())


@pytest.fixture
def device() -> Device:
    return poor(InterpCompiler, DType.FLOAT64)


@pytest.fixture
def evaluator(device: Device) -> tile.Evaluator:
    return tile.Evaluator(device, fallback="interp")


def test_without_a_fallback_the_program_is_refused(device: Device) -> None:
    with pytest.raises(TileDeviceError, match="tensor 'D' is float64, which device poor:0 does not have"):
        tile.Evaluator(device)(MIXED, A)


def test_what_the_device_lacks_runs_elsewhere_with_one_warning(evaluator: tile.Evaluator) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            b, r, c = evaluator(MIXED, A)
    assert (b.tolist(), c.tolist()) == ((A + 1).tolist(), A.tolist()) and r.tolist() == ((A + 1) * 55).tolist()
    (one,) = [w for w in caught if w.category is TileFallbackWarning]
    assert "'D' (line 4), 'E' (line 5), 'S' (line 6)" in str(one.message) and "(no float64)" in str(one.message)
    assert "poor:0 cannot run all of the program, these steps run on interp:0" in str(one.message)
    assert one.filename == __file__


@pytest.mark.parametrize("lacks", ["capabilities", "target"])
def test_a_device_that_cannot_reinterpret_bits(lacks: str) -> None:
    whole = poor()
    fewer = whole.target.nodes - {"Bitcast"}
    target = replace(whole.target, nodes=fewer) if lacks == "target" else whole.target
    able = replace(whole.capabilities, nodes=fewer) if lacks == "capabilities" else whole.capabilities
    device = HostDevice("poor:0", "Poor", target, able, InterpCompiler(fewer), InterpExecutor())
    function = tile.Function("function (A) -> (O) { B = A + 1; O = bits_as_int(B); }")
    with pytest.raises(TileDeviceError, match="device poor:0 cannot reinterpret bits, which 'O' needs"):
        tile.Evaluator(device)(function, A)
    with pytest.warns(TileFallbackWarning, match="no way to reinterpret bits"):
        found = tile.Evaluator(device, fallback="interp")(function, A)
    assert found.tolist() == (A + 1).view(np.int32).tolist()


@pytest.mark.filterwarnings("ignore::tile_ir.diagnostics.TileFallbackWarning")
class TestResults:
    def test_tensors_stay_on_the_device(self, evaluator: tile.Evaluator, device: Device) -> None:
        t = tile.asarray(A, device)
        results = evaluator(MIXED, t)
        assert {r.device for r in results} == {device}
        assert results[2].buffer is not t.buffer
        assert results[1].numpy().tolist() == ((A + 1) * 55).tolist()

    def test_given_outputs_receive_them(self, evaluator: tile.Evaluator, device: Device) -> None:
        r, c = np.empty(5, np.float32), tile.Tensor(device, (5,), "float32")
        b, got, same = evaluator(MIXED, A, out=(None, r, c))
        assert got is r and same is c and b.tolist() == (A + 1).tolist()
        assert r.tolist() == ((A + 1) * 55).tolist() and c.numpy().tolist() == A.tolist()

    def test_two_results_of_one_value_are_two_arrays(self, evaluator: tile.Evaluator) -> None:
        twice = tile.Function("function (A) -> (B, C) { D = as_float(A, 64) * 2; B = as_float(D, 32); C = B; }")
        b, c = evaluator(twice, A)
        b[:] = 0
        assert c.tolist() == (2 * A).tolist()

    def test_results_of_a_type_that_the_device_lacks(self, evaluator: tile.Evaluator, device: Device) -> None:
        wide = tile.Function("function (A) -> (B) { B = as_float(A, 64) / 3; }")
        assert evaluator(wide, A).dtype == np.float64
        (result,) = (evaluator(wide, tile.asarray(A, device)),)
        assert result.device is device and np.array_equal(result.numpy(), A.astype(np.float64) / 3)

    def test_an_unused_input_of_a_type_that_the_device_lacks(self, evaluator: tile.Evaluator) -> None:
        unused = tile.Function("function (A, B) -> (C) { C = A + 1; }")
        assert evaluator(unused, A, A.astype(np.float64)).tolist() == (A + 1).tolist()

    def test_gradients(self, evaluator: tile.Evaluator) -> None:
        gradient = tile.vjp(MIXED, "A")
        expected = tile.Evaluator("interp")(gradient, A, A, A, A)
        assert evaluator(gradient, A, A, A, A).tobytes() == expected.tobytes()

    def test_compositions_update_their_tensors(self, evaluator: tile.Evaluator, device: Device) -> None:
        add = tile.Function("function (A, B) -> (C) { C = as_float(as_float(A, 64) + as_float(B, 64), 32); }")
        weights = tile.asarray(np.ones(4, np.float32), device)
        x = tile.placeholder("float32", (4,), "x")
        y = add(x, weights)
        step = tile.compose([x], [y], updates=[(weights, y)])
        for _ in range(3):
            result = evaluator(step, np.ones(4, np.float32))
        assert result.tolist() == weights.numpy().tolist() == [4] * 4

    def test_explain_names_the_steps_and_the_parts(self, evaluator: tile.Evaluator) -> None:
        lowered = evaluator.lower(MIXED, A)
        text = lowered.explain()
        assert "these steps run on interp:0: 'D' (line 4)" in text
        assert [part.device.id for part in lowered.parts] == ["poor:0", "interp:0", "poor:0"]  # type: ignore[attr-defined]
        assert "Part 2 of 3, on interp:0:" in text
        with pytest.raises(TileDeviceError, match="runs in 3 parts on poor:0 and interp:0"):
            lowered.kernels  # noqa: B018

    def test_what_a_compiler_refuses_runs_elsewhere(self) -> None:
        evaluator = tile.Evaluator(poor(NoExp), fallback="interp")
        function = tile.Function("function (A[N]) -> (B) { X = A * 2; Y = exp(X); B[i:N] = +(Y[i]); }")
        assert np.allclose(evaluator(function, A), np.exp(2 * A))
        with pytest.warns(TileFallbackWarning, match=r"'Y' \(line 1\) \(no exp in"):
            lowered = evaluator.lower(function, A)
        assert len(lowered.parts) == 3  # type: ignore[attr-defined]


def test_a_program_that_the_device_can_run_runs_there(evaluator: tile.Evaluator) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lowered = evaluator.lower(tile.Function("function (A) -> (B) { B = A + 1; }"), A)
    assert len(lowered.kernels.kernels) == 1


def test_what_neither_device_has_is_refused_by_the_fallback() -> None:
    first, second = poor(InterpCompiler, DType.FLOAT64), poor(InterpCompiler, DType.FLOAT64)
    second.id = "poor:1"
    evaluator = tile.Evaluator(first, fallback=second)
    with pytest.warns(TileFallbackWarning), pytest.raises(TileDeviceError, match="which device poor:1 does not have"):
        evaluator(MIXED, A)


def test_plans_are_for_programs_of_one_device(device: Device) -> None:
    plain = tile.Evaluator("interp")
    plans = str(plain.lower(tile.Function("function (A) -> (B) { B = A + 1; }"), A).plans)
    with pytest.raises(TilePlanError, match="plans cannot be given"):
        tile.Evaluator(device, fallback="interp", plans=plans)(MIXED, A)


def test_a_fallback_must_run_something_and_be_another_device() -> None:
    with pytest.raises(TileDeviceError, match="null:0 runs nothing"):
        tile.Evaluator("interp", fallback="null")
    assert tile.Evaluator("interp", fallback="interp").fallback is None
    with pytest.raises(TileDeviceError, match="there is no device"):
        tile.Evaluator("interp", fallback="nowhere")


CHAIN = """
function (A[N], B[N]) -> (R, S, A2) {
    K = 3;
    C = A + B * K;
    D = exp(C);
    E[i : N] = >(D[j] * B[i]);
    F = C * E + A;
    G = D > F ? C : B;
    R = G + F;
    S[] = +(R[i] * G[i]);
    A2 = A;
}"""


@pytest.mark.parametrize("seed", range(30))
def test_any_division_gives_the_same(seed: int) -> None:
    """Whichever operations run away from home: the parts, one after the other, compute what the whole does."""
    type_ = TensorType(DType.FLOAT32, (6,))
    program = tile_lang.bind(tile_lang.parse(CHAIN), {"A": type_, "B": type_})
    rng = np.random.default_rng(seed)
    inputs = {n: rng.random(6).astype(np.float32) for n in "AB"}
    names = [op.name for op in program.ops]  # type: ignore[union-attr]
    parts = divide(program, {n for n in names if rng.random() < 0.5})
    assert all(a.away != b.away for a, b in itertools.pairwise(parts))
    known = dict(inputs)
    for part in parts:
        known |= tile_lang.evaluate(part.program, {p.name: known[p.name] for p in part.program.inputs})
    expected = tile_lang.evaluate(program, inputs)
    for public, value in program.outputs:
        assert known[value].tobytes() == expected[public].tobytes(), public
