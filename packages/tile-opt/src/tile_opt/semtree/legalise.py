"""Rewriting optional semtree nodes that a target does not list into the core.

`legalise(function, nodes)` returns an equal function whose nodes are the core and those in `nodes`:
Fma becomes a product and a sum (it is only ever a contraction); a target that lacks any vector node gets
scalars, one per lane; barriers of a group of one vanish; a copy that runs ahead becomes a loop; rounding to fewer
bits becomes arithmetic, and a matrix product across lanes, where there are barriers, an exchange through local
memory (`tile_opt.semtree.matrix`); a function beyond the core becomes a formula (`tile_opt.semtree.functions`). What has no meaning in the core (barriers between threads, atomics, sub-groups)
is a LegaliseError. So is a `MatrixLoad`: schedules have it only for targets that do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

from tile_ir.diagnostics import Diagnostic, TileDeviceError
from tile_ir.dots import DOTS, WORD, DotProduct
from tile_ir.dtype import DType
from tile_ir.emit.names import sanitize
from tile_ir.emit.walker import children, map_block, walk_all, walk_statements
from tile_ir.semtree.nodes import (
    AsyncCopy,
    AsyncWait,
    Barrier,
    Binary,
    Bitcast,
    Block,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Fma,
    For,
    Function,
    If,
    Load,
    Round,
    Select,
    Statement,
    Store,
    TeamMma,
    TensorCopy,
    Type,
    Unary,
    Var,
)  # fmt: skip
from tile_ir.semtree.verify import CORE_NODES, LISTED_FUNCTIONS

from tile_opt.semtree.functions import expanded, remainder
from tile_opt.semtree.matrix import rounded, through_local_memory
from tile_opt.semtree.scalarise import scalarise
from tile_opt.semtree.teams import own_sums
from tile_opt.semtree.tensors import own_share

VECTOR_NODES = frozenset({"Splat", "Extract", "Insert", "Shuffle", "Iota", "ReduceLanes"})
"""A target that takes vectors takes all of these."""


LACKING = "TILE-E524"
"""The code of a `LegaliseError`."""


class LegaliseError(TileDeviceError):
    """A kernel needs a node that the target lacks and that the core cannot express."""


_HINT = "leave out the passes that make such kernels, or list the nodes where the device has them"


def legalise(function: Function, nodes: frozenset[str]) -> Function:
    """`function` with only core nodes and `nodes`; itself when nothing had to change."""
    missing = used_nodes(function) - nodes - CORE_NODES
    if "Mma" in missing and "Barrier" in nodes:
        function = through_local_memory(function)
        missing = used_nodes(function) - nodes - CORE_NODES
    if not missing and (nodes >= VECTOR_NODES or not _has_vectors(function)):
        return function
    helpers = tuple(legalise(h, nodes) for h in function.helpers)
    rewriter = _Rewriter(function, missing)
    body = map_block(function.body, rewriter.expression, rewriter.statement)
    result = replace(function, body=body, helpers=helpers)
    if not nodes >= VECTOR_NODES and _has_vectors(result):
        result = scalarise(result)
    left = used_nodes(result) - nodes - CORE_NODES
    if left:
        message = f"kernel {function.name!r} needs {', '.join(sorted(left))}, which the target lacks"
        raise LegaliseError(Diagnostic(LACKING, message, hint=_HINT))
    return result


_LEAVES = frozenset((Var, Const))
"""The most frequent nodes; they have no children."""


def used_nodes(function: Function) -> frozenset[str]:
    """Class names of all nodes in a function's body, and the optional functions that it calls."""
    statements = [*walk_statements(function.body)]
    kinds, functions = {*map(type, statements)}, set[str]()
    level = [e for s in statements for e in children(s)]
    seen: set[int] = set()
    while level:
        kinds.update(map(type, level))
        # Most nodes are leaves; of the others, those that several share are entered once.
        inner = {id(e): e for e in level if type(e) not in _LEAVES}
        level = [e for key, node in inner.items() if key not in seen for e in children(node)]
        seen |= inner.keys()
        functions.update(e.name for e in inner.values() if isinstance(e, Call))
    return frozenset(kind.__name__ for kind in kinds) | functions & LISTED_FUNCTIONS


def _has_vectors(function: Function) -> bool:
    return any(e.type.lanes > 1 for e in walk_all(function))


class _Rewriter:
    def __init__(self, function: Function, missing: frozenset[str]) -> None:
        self.missing = missing
        self.group_size = function.group_size
        self.alone = prod(function.group_size) == 1
        self.loops = 0
        self.before: list[Statement] = []
        """What the statement in hand needs in front of it."""
        self.prefix = sanitize(f"{function.name}_copy")

    def expression(self, expr: Expr) -> Expr:
        if isinstance(expr, Fma) and "Fma" in self.missing:
            return Binary("add", Binary("mul", expr.a, expr.b, expr.type), expr.c, expr.type)
        if isinstance(expr, Round) and "Round" in self.missing:
            return rounded(expr)
        if isinstance(expr, Call) and expr.name in self.missing:
            return self.function(expr)
        return expr

    def function(self, call: Call) -> Expr:
        if call.name in DOTS:
            return summed(call)
        if call.name != "fmod":
            return expanded(call)
        made, value = remainder(call, self.fresh())
        self.before += made
        return value

    def fresh(self) -> str:
        self.loops += 1
        return f"{self.prefix}{self.loops - 1}"

    def statement(self, statement: Statement) -> Sequence[Statement]:
        rewrite = _STATEMENTS.get(type(statement).__name__) if type(statement).__name__ in self.missing else None
        before, self.before = self.before, []
        return (*before, *((statement,) if rewrite is None else rewrite(self, statement)))

    def barrier(self, statement: Statement) -> Sequence[Statement]:
        """Nothing to wait for in a group of one."""
        return () if self.alone else (statement,)

    def wait(self, statement: Statement) -> Sequence[Statement]:
        """Copies that were made at once are complete."""
        return ()

    def team_product(self, statement: Statement) -> Sequence[Statement]:
        """Every work item by itself, from local memory: complete before anybody waits for it."""
        assert isinstance(statement, TeamMma)
        return (own_sums(statement, self.group_size, self.fresh()),)

    def tensor_copy(self, statement: Statement) -> Sequence[Statement]:
        """Every work item its share: all meet before anybody reads any of it."""
        assert isinstance(statement, TensorCopy)
        return (own_share(statement, self.group_size, self.fresh()),)

    def copy(self, statement: Statement) -> Sequence[Statement]:
        """A loop over the elements."""
        assert isinstance(statement, AsyncCopy)
        name = self.fresh()
        type = statement.dst_index.type
        var = Var(name, type)
        element = Type(statement.src.type.dtype, statement.src.type.lanes)
        value = Load(statement.src, Binary("add", statement.src_index, var, type), element)
        store = Store(statement.dst, Binary("add", statement.dst_index, var, type), value)
        loop = For(name, Const(0, type), Const(statement.count, type), 1, Block((store,)))
        if statement.guard is None:
            return (loop,)
        zero = Store(statement.dst, store.index, Const(0.0 if element.dtype.is_float else 0, element))
        otherwise = Block((replace(loop, body=Block((zero,))),)) if statement.fill else None
        return (If(statement.guard, Block((loop,)), otherwise),)


_STATEMENTS: dict[str, Callable[[_Rewriter, Statement], Sequence[Statement]]] = {
    Barrier.__name__: _Rewriter.barrier,
    AsyncWait.__name__: _Rewriter.wait,
    AsyncCopy.__name__: _Rewriter.copy,
    TeamMma.__name__: _Rewriter.team_product,
    TensorCopy.__name__: _Rewriter.tensor_copy,
}


_TINY = 2.0**-126
"""The smallest normal float32."""


def summed(call: Call) -> Expr:
    """The third operand and the products of factors of equal place in the other two."""
    dot = DOTS[call.name]
    left, right, total = call.args
    if dot.c.is_float:
        return _of_floats(call, dot)
    for place in range(dot.depth):
        product = Binary("mul", _factor(left, dot.a, place), _factor(right, dot.b, place), call.type)
        total = Binary("add", total, product, call.type)
    return total


def _of_floats(call: Call, dot: DotProduct) -> Expr:
    """Each product added with one rounding, the last one first; subnormal numbers are zeros throughout."""
    left, right, total = call.args
    total = _flushed(total)
    widened = _half if dot.a is DType.FLOAT16 else _wide
    for place in reversed(range(dot.depth)):
        a, b = (widened(word, place) for word in (left, right))
        total = _flushed(Fma(a, b, total, call.type))
    return total


def _wide(word: Expr, place: int) -> Expr:
    """The bfloat16 at a place of a word as float32, whose high half it is."""
    high = Binary("bit_and", word, Const(-(1 << 16), word.type), word.type) if place else _shifted("bit_left", word, 16)
    return _flushed(Bitcast(high, Type(DType.FLOAT32, word.type.lanes)))


def _half(word: Expr, place: int) -> Expr:
    """The float16 at a place of a word as float32, where all of them are normal numbers."""
    low = _shifted("bit_right", word, 16 * place)
    lanes = word.type.lanes
    half = Bitcast(Cast(low, Type(DType.UINT16, lanes)), Type(DType.FLOAT16, lanes))
    return Cast(half, Type(DType.FLOAT32, lanes))


def _flushed(value: Expr) -> Expr:
    """A zero of the same sign in place of a subnormal number."""
    type = value.type
    tiny = Compare("cmp_lt", Unary("abs", value, type), Const(_TINY, type), Type(DType.BOOL, type.lanes))
    return Select(tiny, Binary("mul", value, Const(0.0, type), type), value, type)


def _factor(word: Expr, dtype: DType, place: int) -> Expr:
    """The factor at a place of a word, counted from its lowest bits, extended to a word."""
    type = word.type
    above = WORD.bits - dtype.bits * (place + 1)
    if dtype.is_signed:
        return _shifted("bit_right", _shifted("bit_left", word, above), WORD.bits - dtype.bits)
    low = _shifted("bit_right", word, dtype.bits * place)
    return Binary("bit_and", low, Const((1 << dtype.bits) - 1, type), type)


def _shifted(way: str, word: Expr, count: int) -> Expr:
    return Binary(way, word, Const(count, Type(WORD, word.type.lanes)), word.type) if count else word
