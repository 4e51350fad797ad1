"""Compiles a semtree function to Python closures over a frame, once per function.

A frame is a list: slot 0 holds the `Thread`, every variable has a slot of its own. An expression
becomes a function of the frame. Where one is deep or shared, a part of it is computed first, into a
slot (operands are always evaluated, so order is free). A statement becomes a function that gives True
after a Return; one in which threads wait for each other becomes a generator function of the same
result that yields an `Event`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import numpy as np

from tile_ir.emit.walker import children, walk_expr
from tile_ir.frozen import frozen
from tile_ir.semtree import closures_matrix as matrix_closures
from tile_ir.semtree import closures_memory as memory_closures
from tile_ir.semtree import closures_tensors as tensor_closures
from tile_ir.semtree import closures_tiles as tile_closures
from tile_ir.semtree import scalars
from tile_ir.semtree.closures_matrix import Collective
from tile_ir.semtree.closures_memory import Evaluate, Frame, Run
from tile_ir.semtree.errors import SemtreeError
from tile_ir.semtree.nodes import (
    Alloc,
    Assign,
    AsyncCopy,
    AsyncWait,
    Atomic,
    Barrier,
    Binary,
    Bitcast,
    Block,
    Call,
    CallFn,
    Cast,
    Comment,
    Compare,
    Const,
    Expr,
    Extract,
    Fma,
    For,
    Function,
    IdKind,
    If,
    Insert,
    Iota,
    LastGroup,
    Let,
    Limit,
    Load,
    Mma,
    ReduceLanes,
    Return,
    Round,
    Select,
    Shuffle,
    Splat,
    Statement,
    Store,
    TeamMma,
    TensorCopy,
    TileStep,
    Unary,
    Var,
    While,
    WorkId,
)  # fmt: skip

Event = tuple[Barrier | LastGroup | Collective, tuple[Any, ...]]
"""What a thread waits for, and its operands."""
Waiting = Generator[Event, Any, Any]
MAX_DEPTH = 150
"""Nested statements that the interpreter takes; lowering makes a tenth of it."""
_SPILL_DEPTH = 40


@frozen
class Code:
    """A compiled statement: `run(frame)` is True after a Return; with `waits`, it gives a generator of that."""

    run: Callable[[Frame], Any]
    waits: bool = False


@dataclass(slots=True)
class Compiled:
    """A compiled function: call `code.run` on a frame of `slots` places, arguments from slot 1 on."""

    function: Function
    code: Code
    slots: int

    def frame(self, thread: Any, args: Sequence[Any]) -> Frame:
        return [thread, *args, *([None] * (self.slots - 1 - len(args)))]


def compile_function(function: Function, checked: bool) -> Compiled:
    """Compile a verified kernel; `checked` decides whether local arrays watch for races."""
    return _Compiler(checked, {}, function.subgroup).function(function)


@dataclass(slots=True)
class _Step:
    """Part of an expression that is computed ahead, into `slot`."""

    slot: int
    value: Evaluate
    collective: Collective | None = None
    args: tuple[Evaluate, ...] = ()


@dataclass(slots=True)
class _Compiler:
    checked: bool
    helpers: dict[str, Compiled]
    subgroup: int
    scopes: list[dict[str, int]] = field(default_factory=lambda: [{}])
    slots: int = 1
    depth: int = 0

    def function(self, function: Function) -> Compiled:
        for helper in function.helpers:
            inner = _Compiler(self.checked, dict(self.helpers), self.subgroup)
            self.helpers[helper.name] = inner.function(helper)
        for param in function.params:
            self.declare(param.name)
        code = self.block(function.body)
        return Compiled(function, code, self.slots)

    def slot(self) -> int:
        self.slots += 1
        return self.slots - 1

    def declare(self, name: str) -> int:
        self.scopes[-1][name] = slot = self.slot()
        return slot

    def lookup(self, name: str) -> int:
        return next(scope[name] for scope in reversed(self.scopes) if name in scope)

    # --- expressions

    def values(self, *roots: Expr) -> tuple[list[_Step], list[Evaluate]]:
        """Closures of the roots, and what must be computed before them."""
        order = list(walk_expr(*roots))
        uses = Counter(id(child) for node in order for child in children(node))
        uses.update(id(root) for root in roots)
        done: dict[int, Evaluate] = {}
        depth: dict[int, int] = {}
        steps: list[_Step] = []
        for node in order:
            below = children(node)
            args = tuple(done[id(child)] for child in below)
            depth[id(node)] = 1 + max((depth[id(child)] for child in below), default=0)
            if met := matrix_closures.collective(node, self.subgroup):
                step = _Step(self.slot(), args[0], met, args)
            elif below and (uses[id(node)] > 1 or depth[id(node)] > _SPILL_DEPTH):
                step = _Step(self.slot(), self.node(node, args))
            else:
                done[id(node)] = self.node(node, args)
                continue
            steps.append(step)
            depth[id(node)] = 0
            done[id(node)] = itemgetter(step.slot)
        return steps, [done[id(root)] for root in roots]

    def node(self, node: Expr, args: tuple[Evaluate, ...]) -> Evaluate:
        match node:
            case Const(value, t):
                constant = scalars.constant(value, t)
                return lambda f: constant
            case Var(name):
                return itemgetter(self.lookup(name))
            case Load():
                return memory_closures.load(node, args)
            case WorkId(kind, axis):
                row = _ID_ROWS[kind]
                return lambda f: f[0].ids[row][axis]
            case Mma():
                return matrix_closures.whole_product(node, args)
            case _:
                return _apply(_operation(node), args)

    # --- statements

    def block(self, body: Block) -> Code:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise SemtreeError(f"the interpreter takes {MAX_DEPTH} nested statements, not more")
        scopes = len(self.scopes)
        codes: list[Code] = []
        stack: list[Statement | None] = [body]
        while stack:
            item = stack.pop()
            if item is None:
                self.scopes.pop()
            elif isinstance(item, Block):
                self.scopes.append({})
                stack += [None, *reversed(item.body)]
            elif not isinstance(item, Comment):
                codes.append(self.statement(item))
        assert len(self.scopes) == scopes
        self.depth -= 1
        return _sequence(codes)

    def statement(self, item: Statement) -> Code:
        if isinstance(item, While):
            return self.loop_while(item)
        if isinstance(item, Return):
            return Code(lambda f: True)
        steps, args = self.values(*children(item))
        return _after(steps, self.bare(item, args))

    def bare(self, item: Statement, args: list[Evaluate]) -> Code:
        match item:
            case Let(name):
                return Code(_set(self.declare(name), args[0]))
            case Assign(name):
                return Code(_set(self.lookup(name), args[0]))
            case Alloc():
                return Code(memory_closures.alloc(item, self.declare(item.name), self.checked))
            case Store() | Atomic() | AsyncCopy() | TensorCopy() | TileStep():
                return Code(_MOVES[type(item)](item, args))
            case AsyncWait(group, pending):
                return Code(memory_closures.async_wait(group, pending))
            case TeamMma():
                slots = [self.lookup(v.name) for v in item.c if isinstance(v, Var)]
                return Code(matrix_closures.team_product(item, args, slots))
            case For():
                return self.loop_for(item, args)
            case If(_, then, other):
                return _branch(args[0], self.block(then), self.block(other or Block()))
            case Barrier():
                return Code(_barrier(item), waits=True)
            case LastGroup(Var(name)):
                return Code(_arrive(item, self.lookup(name), args[1]), waits=True)
            case CallFn(name):
                return _call(self.helpers[name], args)
            case _:
                raise SemtreeError(f"the interpreter does not know {type(item).__name__}")

    def loop_for(self, item: For, args: list[Evaluate]) -> Code:
        self.scopes.append({})
        slot = self.declare(item.var)
        body = self.block(item.body)
        self.scopes.pop()
        return _loop(slot, args[0], args[1], item.step, body)

    def loop_while(self, item: While) -> Code:
        steps, (cond,) = self.values(item.cond)
        slot = self.slot()
        return _repeat(slot, _after(steps, Code(_set(slot, cond))), self.block(item.body))


_MOVES: dict[type, Callable[[Any, list[Evaluate]], Run]] = {
    Store: memory_closures.store,
    Atomic: memory_closures.atomic,
    AsyncCopy: memory_closures.async_copy,
    TensorCopy: tensor_closures.copy,
    TileStep: tile_closures.step,
}
"""What moves values between memory and elsewhere."""
_ID_ROWS = {IdKind.GLOBAL: 0, IdKind.GROUP: 1, IdKind.LOCAL: 2}

# --- expressions -----------------------------------------------------------------------------------


def _set(slot: int, value: Evaluate) -> Callable[[Frame], None]:
    def run(f: Frame) -> None:
        f[slot] = value(f)

    return run


def _apply(op: Callable[..., Any], args: tuple[Evaluate, ...]) -> Evaluate:
    match args:
        case ():
            return lambda f: op()
        case (a,):
            return lambda f: op(a(f))
        case (a, b):
            return lambda f: op(a(f), b(f))
        case _:
            return lambda f: op(*[arg(f) for arg in args])


def _operation(node: Expr) -> Callable[..., Any]:
    match node:
        case Unary(op, _, t) | Binary(op, _, _, t) | Compare(op, _, _, t) | Call(op, _, t):
            return scalars.operation(op, [child.type for child in children(node)], t)
        case Fma():
            return scalars.fma(node.type)
        case Select(_, _, _, t):
            return _choose if t.lanes == 1 else np.where
        case Cast(value, t):
            return scalars.cast(value.type, t)
        case Bitcast(value, t):
            return scalars.operation("bitcast", (value.type,), t)
        case Round():
            return matrix_closures.round_bits(node)
        case ReduceLanes(agg, value):
            return scalars.reduce_lanes(agg, value.type)
        case Limit(which, t):
            limit = scalars.constant(t.dtype.min_value if which == "min" else t.dtype.max_value, t)
            return lambda: limit
        case _:
            return _lanes(node)


def _choose(cond: Any, then: Any, other: Any) -> Any:
    return then if cond else other


def _lanes(node: Expr) -> Callable[..., Any]:
    dtype = node.type.dtype.numpy
    match node:
        case Splat(_, t):
            if t.lanes == 1:
                return scalars.unary(lambda x: x)
            return scalars.unary(lambda x: np.full(t.lanes, x, dtype))
        case Extract(vector, lane, t):
            return scalars.unary(lambda x: scalars.value_of(np.asarray(x).reshape(vector.type.lanes)[lane], t))
        case Insert(_, lane, _, t):
            return scalars.binary(lambda x, v: v if t.lanes == 1 else _replaced(x, lane, v))
        case Shuffle(_, _, lanes, t):
            picks = list(lanes)
            return scalars.binary(lambda a, b: scalars.value_of(_joined(a, b)[picks], t))
        case Iota(t):
            iota = scalars.value_of(np.arange(t.lanes).astype(dtype), t)
            return lambda: iota
        case _:
            raise SemtreeError(f"the interpreter does not know {type(node).__name__}")


def _joined(*parts: Any) -> Any:
    return np.concatenate([np.atleast_1d(part) for part in parts])


def _replaced(vector: Any, lane: int, value: Any) -> Any:
    result = vector.copy()
    result[lane] = value
    return result


# --- statements ------------------------------------------------------------------------------------


def _sequence(codes: list[Code]) -> Code:
    if len(codes) == 1:
        return codes[0]
    if not any(code.waits for code in codes):
        runs = tuple(code.run for code in codes)

        def plain(f: Frame) -> bool:
            for run in runs:  # noqa: SIM110 (any() costs a generator per block)
                if run(f):
                    return True
            return False

        return Code(plain)

    def waiting(f: Frame) -> Waiting:
        for code in codes:
            if (yield from code.run(f)) if code.waits else code.run(f):
                return True
        return False

    return Code(waiting, waits=True)


def _after(steps: list[_Step], code: Code) -> Code:
    """The statement, preceded by what its expressions need."""
    if not steps:
        return code
    ahead = [Code(_set(s.slot, s.value)) if s.collective is None else Code(_collective(s), waits=True) for s in steps]
    return _sequence([*ahead, code])


def _collective(step: _Step) -> Callable[[Frame], Waiting]:
    assert step.collective is not None
    node, args = step.collective, step.args

    def run(f: Frame) -> Waiting:
        f[step.slot] = yield (node, tuple(arg(f) for arg in args))

    return run


def _barrier(node: Barrier) -> Callable[[Frame], Waiting]:
    def run(f: Frame) -> Waiting:
        yield (node, ())

    return run


def _arrive(node: LastGroup, slot: int, which: Evaluate) -> Callable[[Frame], Waiting]:
    def run(f: Frame) -> Waiting:
        f[slot] = yield (node, (which(f),))

    return run


def _branch(cond: Evaluate, then: Code, other: Code) -> Code:
    if not (then.waits or other.waits):
        yes, no = then.run, other.run
        return Code(lambda f: yes(f) if cond(f) else no(f))

    def waiting(f: Frame) -> Waiting:
        code = then if cond(f) else other
        if code.waits:
            pending: Waiting = code.run(f)
            return (yield from pending)
        return bool(code.run(f))

    return Code(waiting, waits=True)


def _loop(slot: int, start: Evaluate, stop: Evaluate, step: int, body: Code) -> Code:
    if not body.waits:
        run_body = body.run

        def plain(f: Frame) -> bool:
            for i in range(start(f), stop(f), step):
                f[slot] = i
                if run_body(f):
                    return True
            return False

        return Code(plain)

    def waiting(f: Frame) -> Waiting:
        for i in range(start(f), stop(f), step):
            f[slot] = i
            if (yield from body.run(f)):
                return True
        return False

    return Code(waiting, waits=True)


def _repeat(slot: int, test: Code, body: Code) -> Code:
    if not (test.waits or body.waits):

        def plain(f: Frame) -> bool:
            while test.run(f) or f[slot]:
                if body.run(f):
                    return True
            return False

        return Code(plain)

    def waiting(f: Frame) -> Waiting:
        while True:
            if test.waits:
                yield from test.run(f)
            else:
                test.run(f)
            if not f[slot]:
                return False
            if (yield from body.run(f)) if body.waits else body.run(f):
                return True

    return Code(waiting, waits=True)


def _call(helper: Compiled, args: list[Evaluate]) -> Code:
    if not helper.code.waits:

        def plain(f: Frame) -> None:
            helper.code.run(helper.frame(f[0], [arg(f) for arg in args]))

        return Code(plain)

    def waiting(f: Frame) -> Waiting:
        yield from helper.code.run(helper.frame(f[0], [arg(f) for arg in args]))
        return False

    return Code(waiting, waits=True)
