"""Mutable variables of semtree on the llvm device: where control flow meets, they hold what ran last."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from hal_llvm import binding
from tile_ir.dtype import DType
from tile_ir.semtree.interpret import launch as interpreted
from tile_ir.semtree.nodes import (
    Access,
    Assign,
    Binary,
    Block,
    Compare,
    Const,
    Expr,
    For,
    Function,
    If,
    Let,
    Param,
    Statement,
    Store,
    Type,
    Var,
    While,
)

I64, BOOL = Type(DType.INT64), Type(DType.BOOL)
OUT = Param("p0", Type(DType.INT64, ptr=True), Access.READWRITE, 1, 3)
NAMES = ("a", "b", "c")


def number(value: int) -> Const:
    return Const(value, I64)


def integer(op: str, x: Expr, y: int) -> Binary:
    return Binary(op, x, number(y), I64)


def less(x: Expr, y: int) -> Compare:
    return Compare("cmp_lt", x, number(y), BOOL)


class Bodies:
    """Random loops, branches and scopes around assignments; some variables hide others of the same name."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def whole(self) -> tuple[Statement, ...]:
        first = [Let(name, number(n), mutable=True) for n, name in enumerate(NAMES)]
        last = [Store(Var("p0", OUT.type), number(n), self.var(name)) for n, name in enumerate(NAMES)]
        return (*first, self.block(3), *last)

    def var(self, name: str = "") -> Var:
        return Var(name or self.rng.choice(NAMES), I64)

    def block(self, depth: int) -> Block:
        parts = [self.statement(depth) if depth else self.assignment() for _ in range(self.rng.randrange(1, 5))]
        own = [Let(self.rng.choice(NAMES), self.changed(), mutable=True)] * self.rng.randrange(2)
        return Block((*own, *(s for part in parts for s in part)))

    def changed(self) -> Expr:
        return Binary("bit_xor", integer("mul", self.var(), self.rng.randrange(-3, 9)), self.var(), I64)

    def assignment(self) -> tuple[Statement, ...]:
        return (Assign(self.var().name, self.changed()),)

    def statement(self, depth: int) -> tuple[Statement, ...]:
        inside = self.block(depth - 1)
        few = integer("bit_and", self.var(), 3)
        match self.rng.randrange(6):
            case 0:
                return (If(less(few, self.rng.randrange(4)), inside),)
            case 1:
                return (If(less(few, self.rng.randrange(4)), inside, self.block(depth - 1)),)
            case 2:
                return (For("i", number(0), self.rng.choice((few, number(2))), 1, inside),)
            case 3:
                count = Var("w", I64)
                again = Block((Assign("w", integer("add", count, 1)), inside))
                return (Block((Let("w", few, mutable=True), While(less(count, 3), again))),)
            case 4:
                return (inside,)
            case _:
                return self.assignment()


def test_any_control_flow_as_the_interpreter_runs_it(launch_all: Any) -> None:
    bodies = [Bodies(seed).whole() for seed in range(60)]
    got = launch_all([(list(body), [np.zeros(3, np.int64)]) for body in bodies])
    for body, result in zip(bodies, got, strict=True):
        want = np.zeros(3, np.int64)
        interpreted(Function("f", (OUT,), Block(body)), (1, 1, 1), [want])
        assert result.tolist() == want.tolist()


SWAPPED = """define void @swapped(ptr %p) {
  %whole = alloca [4 x float], align 16
  %v = load <4 x float>, ptr %p
  %upper = getelementptr float, ptr %whole, i64 2
  %low = shufflevector <4 x float> %v, <4 x float> poison, <2 x i32> <i32 0, i32 1>
  store <2 x float> %low, ptr %upper
  %high = shufflevector <4 x float> %v, <4 x float> poison, <2 x i32> <i32 2, i32 3>
  store <2 x float> %high, ptr %whole
  %w = load <4 x float>, ptr %whole
  store <4 x float> %w, ptr %p
  ret void
}
"""


def test_an_array_may_be_filled_from_its_end() -> None:
    promoted = binding.Module(SWAPPED, binding.target_machine(binding.host())).ir()
    again = binding.Module(promoted, binding.target_machine(binding.host()))  # refuses what no compiler may make
    assert "alloca" not in promoted and again.object_code()
