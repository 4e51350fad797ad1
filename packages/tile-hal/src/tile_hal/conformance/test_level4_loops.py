"""Level 4: loops of a program, run by the device where its capabilities state `loops`, by the host everywhere else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import tile_opt
from tile_ir.dtype import DType
from tile_ir.kernels import BufferKind
from tile_ir.program.nodes import Loop, Param, Program, TensorType
from tile_lang import evaluate

import tile_hal
from tile_hal.conformance.kernels import assert_same
from tile_hal.conformance.programs import bind, run
from tile_hal.interfaces import Device, DirectArray

STATE = TensorType(DType.INT32, (5,))
ROWS = TensorType(DType.INT32, (7, 5))
STEP = """function (A[N], B[N], X[N], W[N, N]) -> (Next, A, Y) {
    P[i : N] = +(W[i, j] * A[j]);
    Next = P - 2 * B + X;
    Y = Next + A;
}"""
"""Three vectors go round: a state, the one before it, and the rows; nothing but int32, so that all of it is exact."""
TWICE = "function (A[N]) -> (B) { B = 3 * A + 1; }"


def _loop(reverse: bool = False) -> Program:
    """(A, B) after a round for each row of X, and a row of every round."""
    body = bind(STEP, {"A": STATE, "B": STATE, "X": STATE, "W": TensorType(DType.INT32, (5, 5))})
    op = Loop(("A", "B", "Y"), (STATE, STATE, ROWS), body, 7, ("H", "H"), ("X",), ("W",), reverse)
    inputs = tuple(Param(n, t) for n, t in {"H": STATE, "X": ROWS, "W": body.inputs[3].type}.items())
    return Program("rounds", inputs, (op,), (("A", "A"), ("B", "B"), ("Y", "Y")))


def _nested() -> Program:
    """A loop of three rounds, each of which is a loop of four."""
    body = bind(TWICE, {"A": STATE})
    inner = Loop(("C",), (STATE,), body, 4, ("A",))
    outer = Loop(("R",), (STATE,), Program("outer", (Param("A", STATE),), (inner,), (("C", "C"),)), 3, ("H",))
    return Program("nested", (Param("H", STATE),), (outer,), (("R", "R"),))


PROGRAMS = {
    "forwards": _loop(),
    "backwards": _loop(reverse=True),
    "nested": _nested(),
    "never": replace(_nested(), ops=(replace(_nested().ops[0], count=0),)),
}


def _inputs(program: Program) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(11)
    return {p.name: rng.integers(-4, 5, p.type.shape).astype(np.int32) for p in program.inputs}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_loops_compute_what_the_reference_says(tile_device: Device, program: Program) -> None:
    inputs = _inputs(program)
    actual = run(tile_device, program, inputs)
    for name, wanted in evaluate(program, inputs).items():
        assert_same(actual[name].reshape(-1), wanted.reshape(-1), name)


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_so_do_they_in_a_direct_call(tile_device: Device, program: Program) -> None:
    kernels = tile_opt.compile(program, tile_device.target).kernels
    given = [b for b in kernels.buffers if b.kind in (BufferKind.INPUT, BufferKind.OUTPUT)]
    prepared = tile_hal.Prepared(tile_device, tile_device.compiler.build(kernels), kernels)
    arrays = [DirectArray(b.shape, b.dtype, written=b.kind is BufferKind.OUTPUT) for b in given]
    call = prepared.direct(arrays, [b.id for b in given])
    if call is None:
        pytest.skip("device has no direct calls, or none with loops")
    inputs, types = _inputs(program), program.types()
    wanted = evaluate(program, inputs)
    for _ in range(3):  # what one call leaves behind must not show in the next
        outputs = {public: np.full(types[value].shape, -1, np.int32) for public, value in program.outputs}
        assert call.run(*inputs.values(), *outputs.values()) is True
        for name, array in outputs.items():
            np.testing.assert_array_equal(array, wanted[name], err_msg=name)
