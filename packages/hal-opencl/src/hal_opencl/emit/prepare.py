"""Rewriting semtree into what OpenCL C can say: builtins, shallow expressions without shared parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tile_ir.dtype import DType
from tile_ir.emit.walker import assigned, children, map_block, walk_all, walk_expr, with_children
from tile_ir.semtree.nodes import (
    Alloc,
    Assign,
    Binary,
    Block,
    Call,
    Cast,
    Comment,
    Const,
    Expr,
    Fma,
    For,
    Function,
    Insert,
    Let,
    Limit,
    MatrixLoad,
    Mma,
    Statement,
    SubgroupOp,
    Type,
    Var,
    While,
    WorkId,
)  # fmt: skip

from hal_opencl.emit.dialect import Dialect
from hal_opencl.emit.split import split_vectors
from hal_opencl.emit.types import register_bits

MAX_DEPTH = 20
"""Levels of an expression in one statement: compilers limit nested brackets (clang: 256), readers earlier."""
_LEAVES = (Const, Var, Limit, WorkId)
_COLLECTIVES = frozenset({MatrixLoad, Mma, SubgroupOp})
"""All lanes of a sub-group execute these together, and some texts around them (masks, guards, ``?:``) are conditional."""


def prepare(function: Function, dialect: Dialect) -> Function:
    """The function as the printer takes it: vectors of OpenCL's widths, patterns replaced, expressions shallow."""
    helpers = tuple(prepare(helper, dialect) for helper in function.helpers)
    block = split_vectors(function, dialect.vector_bytes // _widest_element(function))
    block = map_block(block, _fast if dialect.fast_math else _exact)
    return replace(function, body=_Hoister(function, block).run(), helpers=helpers)


def _widest_element(function: Function) -> int:
    """Bytes of the widest element of any vector, as a register holds it."""
    vectors = {node.type.dtype for node in walk_all(function) if node.type.lanes > 1}
    return max((register_bits(dtype) // 8 for dtype in vectors), default=1)


# --- patterns --------------------------------------------------------------------------------------


def _exact(node: Expr) -> Expr:
    """Operations OpenCL C lacks, by operations it has."""
    match node:
        case Binary("bit_left" | "bit_right" as op, left, right, t) if t.dtype is DType.BOOL:
            byte = Type(DType.UINT8, t.lanes)
            return Cast(Binary(op, Cast(left, byte), right, byte), t)
        case Binary("bit_left" | "bit_right" as op, left, right, t) if right.type.dtype is DType.BOOL:
            return Binary(op, left, Cast(right, Type(DType.UINT8, t.lanes)), t)
        case Fma(a, b, c, t) if not t.dtype.is_float:
            return Binary("add", Binary("mul", a, b, t), c, t)
        case Cast(value, t) if value.type.dtype is t.dtype:
            return value
        # float64 goes to the half types through float32, as tile_ir.numerics defines.
        case Cast(value, t) if t.dtype in (DType.FLOAT16, DType.BFLOAT16) and value.type.dtype is not DType.FLOAT32:
            return Cast(Cast(value, Type(DType.FLOAT32, t.lanes)), t) if value.type.dtype is DType.FLOAT64 else node
        case _:
            return node


def _fast(node: Expr) -> Expr:
    """Under fast_math a product and a sum become ``mad``, which may round as the device likes."""
    match node:
        case Binary("add", Binary("mul", a, b), c, t) | Binary("add", c, Binary("mul", a, b), t) if (
            t.dtype is DType.FLOAT32
        ):
            return Call("mad", (a, b, c), t)
        case Fma(a, b, c, t) if t.dtype is DType.FLOAT32:
            return Call("mad", (a, b, c), t)
        case _:
            return _exact(node)


# --- shallow, unshared expressions -------------------------------------------------------------------


class _Hoister:
    """Moves deep and shared parts of expressions into variables before the statement."""

    def __init__(self, function: Function, block: Block) -> None:
        self._block = block
        self._used = assigned(block) | {p.name for p in function.params}
        self._count = 0

    def run(self) -> Block:
        return map_block(self._block, None, self._statement)

    def _statement(self, statement: Statement) -> Sequence[Statement]:
        if isinstance(statement, (Alloc, Comment, Block)):
            return (statement,)
        lets: list[Statement] = []
        # Alone in its statement a collective is unconditional where it stands.
        alone = id(statement.value) if isinstance(statement, (Let, Assign)) else 0
        new = self._shallow(list(children(statement)), lets, alone)
        if isinstance(statement, For) and not isinstance(new[1], Const):
            new[1] = self._let(new[1], lets)  # C would evaluate the bound in every iteration
        if isinstance(statement, While) and lets:
            return (self._loop(statement, lets, new[0]),)
        return (*lets, with_children(statement, new))

    def _loop(self, statement: While, lets: list[Statement], cond: Expr) -> Statement:
        """A condition that needs statements of its own: computed before the loop and again at its end."""
        flag = self._fresh()
        again = Block((*lets, Assign(flag, cond)))
        body = Block((*statement.body.body, again))
        return Block((*lets, Let(flag, cond, True), While(Var(flag, cond.type), body)))

    def _shallow(self, roots: list[Expr], lets: list[Statement], alone: int) -> list[Expr]:
        order = list(walk_expr(*roots))
        collectives = {id(node) for node in order if type(node) in _COLLECTIVES} - {alone}
        if len(order) <= 3 and not collectives:
            return roots
        uses: dict[int, int] = {}
        for node in order:
            for child in children(node):
                uses[id(child)] = uses.get(id(child), 0) + 1
        result: dict[int, tuple[Expr, int]] = {}
        for node in order:
            parts = [result[id(child)] for child in children(node)]
            new = with_children(node, [part for part, _ in parts])
            depth = _depth(node, [d for _, d in parts])
            apart = depth >= MAX_DEPTH or uses.get(id(node), 0) > 1 or id(node) in collectives
            if apart and not isinstance(node, _LEAVES):
                new, depth = self._let(new, lets), 0
            result[id(node)] = new, depth
        return [result[id(root)][0] for root in roots]

    def _let(self, value: Expr, lets: list[Statement]) -> Expr:
        if isinstance(value, Var) and value.type.ptr:
            return value
        name = self._fresh()
        lets.append(Let(name, value))
        return Var(name, value.type)

    def _fresh(self) -> str:
        while True:
            self._count += 1
            name = f"t{self._count}"
            if name not in self._used:
                return name


def _depth(node: Expr, below: list[int]) -> int:
    if isinstance(node, Insert):  # a chain of them is written as one list of lanes
        return max(below[0], below[1] + 1)
    return 1 + max(below, default=0)
