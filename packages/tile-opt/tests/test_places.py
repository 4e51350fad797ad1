"""places: kernels that differ in where they read and write alone are one."""

from __future__ import annotations

import pytest
from lowering_support import check, random_inputs
from tile_ir.dtype import DType
from tile_ir.kernels import KernelList, StepKind, flat_steps
from tile_ir.program.nodes import TensorType
from tile_ir.stripe.nodes import Program as Stripe
from tile_ir.target import HardwareSettings, PassConfig, Target
from tile_lang import bind, parse
from tile_opt.lowering import lower
from tile_opt.pipeline import optimize
from tile_opt.translate import to_stripe

PASSES = tuple(map(PassConfig, ("inline", "in_place", "places", "fuse")))
TARGET = Target("test", HardwareSettings(), passes=PASSES)


def stripe(text: str, **shapes: tuple[int, ...]) -> Stripe:
    return to_stripe(bind(parse(text), {n: TensorType(DType.FLOAT32, s) for n, s in shapes.items()}))


def recurrence(steps: int, *, across: bool = False) -> Stripe:
    """``h = tanh(W h + X[t])``, and all of these in one result; `across`, rows of steps lie side by side."""
    place, cell, size, all_ = (
        ("m, t + {t}", "m, t", "M, 1", "M, T") if across else ("t + {t}, m", "t, m", "1, M", "T, M")
    )
    lines: list[str] = []
    for t in range(steps):
        before = f"H{t - 1}" if t else "H"
        at = place.format(t=t)
        product = f"+({before}[{cell.replace('m', 'k')}] * W[k, m])"
        lines.append(
            f"P{t}[{cell} : {size}] = {product}; X{t}[{cell} : {size}] = =(X[{at}]); H{t} = tanh(X{t} + P{t});"
        )
        default = f" default Y{t - 1}" if t else ""
        lines.append(f"Y{t}[{at} : {all_}] = =(H{t}[{cell}]){default};")
    head = "X[M, T], H[M, U], W[M, M]" if across else "X[T, M], H[U, M], W[M, M]"
    row, one = ((8, steps), (8, 1)) if across else ((steps, 8), (1, 8))
    last = steps - 1
    return stripe(f"function ({head}) -> (Y{last}, H{last}) {{ {' '.join(lines)} }}", X=row, H=one, W=(8, 8))


def passed(program: Stripe) -> Stripe:
    return optimize(program, TARGET, verify=True)


def checked(program: Stripe) -> KernelList:
    """The kernels, whose results are those of the program as it was written."""
    inputs = {name: value / 2 for name, value in random_inputs(program).items()}
    return check(passed(program), inputs, TARGET, reference=program)


def test_steps_of_a_recurrence_have_one_kernel() -> None:
    few, many = checked(recurrence(12)), checked(recurrence(20))
    assert len(many.steps) - len(few.steps) == 8 * (len(few.steps) // 12)
    assert len(many.kernels) == len(few.kernels) < 6


def test_a_step_says_where_its_rows_are() -> None:
    kernels = checked(recurrence(12))
    loops = [step.loop for step in kernels.steps if step.loop is not None]
    starts = [sorted((w.start, w.written) for w in loop.windows) for loop in loops]
    assert starts[1:11] == [[(t * 32 - 32, False), (t * 32, False), (t * 32, True)] for t in range(1, 11)]
    assert all(loop.count == 1 for loop in loops)
    assert {s.kind for s in flat_steps(kernels.steps)} <= {StepKind.KERNEL, StepKind.COPY}


def test_few_steps_stay_as_they_are() -> None:
    made = passed(recurrence(5))
    assert "_part" not in str(made) and all(step.loop is None for step in lower(made, TARGET).steps)


def test_rows_that_lie_side_by_side_are_written_in_kernels_of_their_own() -> None:
    kernels = checked(recurrence(9, across=True))
    assert not any(w.written for s in kernels.steps if s.loop is not None for w in s.loop.windows)


@pytest.mark.parametrize("reader", ["S[m : M] = +(Y8[t, m]);", "S[t, m : T, M] = =(Y8[T - 1 - t, m]);"])
def test_what_reads_all_of_the_rows_waits_for_all_of_them(reader: str) -> None:
    lines = "A0[u, m : 1, M] = =(X[u, m]); H0 = exp(A0); Y0[u, m : T, M] = =(H0[u, m]);"
    for t in range(1, 9):
        lines += f" A{t}[u, m : 1, M] = =(X[u + {t}, m]); H{t} = exp(A{t}) + H{t - 1};"
        lines += f" Y{t}[u + {t}, m : T, M] = =(H{t}[u, m]) default Y{t - 1};"
    checked(stripe(f"function (X[T, M]) -> (S) {{ {lines} {reader} }}", X=(9, 32)))


def test_rows_that_data_chooses_are_not_divided() -> None:
    lines = " ".join(f"G{t} = gather(X, I + {t});" for t in range(9))
    outputs = ", ".join(f"G{t}" for t in range(9))
    text = f"function (X[T, M], I[N]) -> ({outputs}) {{ {lines} }}"
    types = {"X": TensorType(DType.FLOAT32, (9, 32)), "I": TensorType(DType.INT32, (3,))}
    program = to_stripe(bind(parse(text), types))
    assert "_part" not in str(passed(program))
