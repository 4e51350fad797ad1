"""Steps that share addresses: those of the compiler are proved, and wrong ones are refused."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from program_samples import programs
from tile_ir.dtype import DType
from tile_ir.kernels import BufferKind, KernelList
from tile_ir.program.nodes import Elementwise, Literal, Param, Program, TensorType
from tile_ir.target import HardwareSettings, PassConfig, Target
from tile_opt.compiler import compile
from tile_opt.proof import ProofError, check_steps, prove_steps

F = DType.FLOAT32
T = TensorType(F, (9,))
PLAIN = Target("plain", HardwareSettings())
FUSED = replace(
    PLAIN, passes=tuple(PassConfig(n) for n in ("inline", "fuse", "merge", "accumulate", "schedule_kernels"))
)


def chain(length: int) -> KernelList:
    """``B1 = A + 1; B2 = B1 + 2; …`` as a kernel each: of the temporaries two are needed at once."""
    names = ["A", *(f"B{k}" for k in range(1, length + 1))]
    ops = tuple(
        Elementwise(new, T, "add", (old, Literal(float(k), F))) for k, (old, new) in enumerate(pairwise(names), 1)
    )
    return compile(Program("chain", (Param("A", T),), ops, ((names[-1], names[-1]),)), PLAIN).kernels


@settings(max_examples=60)
@given(programs(), st.sampled_from([PLAIN, FUSED]))
def test_the_compilers_own_steps_are_proved(program: Program, target: Target) -> None:
    report = prove_steps(compile(program, target).kernels)
    assert report.proved, str(report)


def test_temporaries_share_their_bytes() -> None:
    kernels = chain(6)
    assert len([b for b in kernels.buffers if b.kind is BufferKind.TEMP]) == 5
    assert kernels.arenas == (100,) and check_steps(kernels).proved


@pytest.mark.parametrize("step", range(1, 6))
def test_a_step_that_does_not_wait_is_refused(step: int) -> None:
    kernels = chain(6)
    hasty = replace(kernels.steps[step], deps=())
    wrong = replace(kernels, steps=(*kernels.steps[:step], hasty, *kernels.steps[step + 1 :]))
    with pytest.raises(ProofError, match=r"is touched without waiting for step"):
        check_steps(wrong)


def test_a_wait_for_an_earlier_step_is_a_wait_for_those_before_it() -> None:
    kernels = chain(6)
    assert all(set(s.deps) <= {n - 1, n - 2} for n, s in enumerate(kernels.steps))
    assert check_steps(
        replace(kernels, steps=tuple(replace(s, deps=(n - 1,) if n else ()) for n, s in enumerate(kernels.steps)))
    ).proved


def test_temporaries_that_are_needed_at_once_may_not_share() -> None:
    kernels = chain(6)
    wrong = replace(kernels, buffers=tuple(replace(b, offset=0) for b in kernels.buffers))
    with pytest.raises(ProofError, match="B2 is written where B1 lies"):
        check_steps(wrong)


def test_what_is_read_was_not_overwritten() -> None:
    """The last step reads B1, whose place B3 has meanwhile."""
    kernels = chain(6)
    (first, *_, last), by_name = kernels.steps, {b.name: b for b in kernels.buffers}
    assert by_name["B1"].offset == by_name["B3"].offset
    late = replace(last, buffers=(last.buffers[0], first.buffers[0]), deps=tuple(range(5)))
    with pytest.raises(ProofError, match=r"B1 is read where B[35] was written"):
        check_steps(replace(kernels, steps=(*kernels.steps[:-1], late)))
