"""Syntax tree of a Tile function: what the parser makes, the printer prints and the binder reads.

Every node carries the span of its text. Two nodes are equal when they have the same structure; spans do not
count. An operator chain such as ``A + B + …`` nests as deep as it is long, so walk expressions with
`postorder` (or another loop), never by recursion: equality, hashing and printing here do the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import cast

from tile_ir.diagnostics import Source, Span
from tile_ir.ops import Aggregation

NO_SPAN = Span(Source("", "<none>"), 0, 0)
"""The span of nodes that were built, not parsed."""


class Node:
    """Base of all nodes: structural equality and hash without recursion, spans ignored."""

    __slots__ = ()
    span: Span

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Node):
            return NotImplemented
        return all(a == b for a, b in zip(_flat(self), _flat(other), strict=False))

    def __hash__(self) -> int:
        return hash(tuple(_flat(self)))

    def __repr__(self) -> str:
        shown = self.span.text if self.span.source.text else "…"
        return f"<{type(self).__name__} {shown[:80]}>"


def _flat(root: Node) -> Iterator[object]:
    """The tree as one prefix sequence of classes, lengths and leaf values."""
    stack: list[object] = [root]
    while stack:
        item = stack.pop()
        if isinstance(item, Node):
            yield type(item)
            stack.extend(getattr(item, n) for n in _fields(type(item)))
        elif isinstance(item, tuple):
            items = cast("tuple[object, ...]", item)
            yield len(items)
            stack.extend(items)
        else:
            yield item


def _fields(cls: type[Node]) -> list[str]:
    names = cast("tuple[str, ...]", getattr(cls, "__match_args__", ()))
    return [n for n in names if n != "span"]


# --- expressions -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class IntLiteral(Node):
    """Decimal digits, kept as written."""

    text: str
    span: Span = NO_SPAN

    @property
    def value(self) -> int:
        return int(self.text)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FloatLiteral(Node):
    """``inf``, ``nan`` or a number with a point or an exponent, kept as written (`value` is the nearest float64)."""

    text: str
    span: Span = NO_SPAN

    @property
    def value(self) -> float:
        return float(self.text)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Name(Node):
    """A tensor or dimension name; `id` is without the ``#`` of an escaped one."""

    id: str
    span: Span = NO_SPAN


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class IndexName(Node):
    """An index variable inside an index formula; `id` is without the ``$`` of an escaped one."""

    id: str
    span: Span = NO_SPAN


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Call(Node):
    """``function(args…)`` with one argument or more; `function_span` covers the name alone."""

    function: str
    args: tuple[Expr, ...]
    span: Span = NO_SPAN

    @property
    def function_span(self) -> Span:
        end = self.span.source.text.find("(", self.span.start)
        return Span(self.span.source, self.span.start, max(self.span.start, end))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Unary(Node):
    """``-x`` or ``~x``; `op` is that symbol. A negative literal is a Unary of its digits."""

    op: str
    operand: Expr
    span: Span = NO_SPAN


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Binary(Node):
    """``left op right``; `op` is one of ``+ - * / == != < > <= >= << >> & | ^``. ``2i`` is ``2 * i``."""

    op: str
    left: Expr
    right: Expr
    span: Span = NO_SPAN


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Conditional(Node):
    """``test ? then : otherwise``."""

    test: Expr
    then: Expr
    otherwise: Expr
    span: Span = NO_SPAN


Expr = IntLiteral | FloatLiteral | Name | IndexName | Call | Unary | Binary | Conditional
"""An elementwise expression: every kind but IndexName."""

Poly = IntLiteral | Name | IndexName | Unary | Binary
"""An index formula: integers, dimension names, index variables, unary ``-`` and ``+ - * /``, nested alike.

Whether it is affine is the binder's question.
"""


# --- contractions ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Ref(Node):
    """``X[subscripts…]`` in a contraction body, or as a subscript itself; no subscripts for a scalar."""

    name: Name
    indexes: tuple[Subscript, ...]
    span: Span = NO_SPAN


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Border(Node):
    """``mode(formula)`` as a subscript: what a tensor holds beyond its edges; `mode` is a key of `tile_lang.borders.MODES`."""

    mode: str
    formula: Poly
    span: Span = NO_SPAN


Subscript = Poly | Ref | Border
"""An index formula, with a border or without, or data."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Target(Node):
    """``O[indexes… : sizes…]``; `sizes` is None when the text has no colon (legal for ``O[]`` alone: binder's rule)."""

    name: Name
    indexes: tuple[Subscript, ...]
    sizes: tuple[Expr, ...] | None
    span: Span = NO_SPAN


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Body(Node):
    """What is aggregated: one ref (`comb` None), or refs joined by `comb`: ``+`` or ``*``, or ``==`` between two.

    With `then` the body is conditional: ``refs[0] == refs[1] ? then``, whatever symbol joins the two.
    """

    refs: tuple[Ref, ...]
    comb: str | None
    then: Ref | None = None
    span: Span = NO_SPAN

    @property
    def accesses(self) -> tuple[Ref, ...]:
        """All tensors that the body reads, as the text has them."""
        return self.refs if self.then is None else (*self.refs, self.then)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Constraint(Node):
    """``formula < bound``, which means ``0 <= formula < bound``."""

    formula: Poly
    bound: Expr
    span: Span = NO_SPAN


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Attribute(Node):
    """``[[name(args…)]]`` in front of a statement."""

    name: str
    args: tuple[str, ...]
    span: Span = NO_SPAN


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Contraction(Node):
    """``target = agg(body), constraints… no_defract default X;``."""

    target: Target
    agg: Aggregation
    body: Body
    constraints: tuple[Constraint, ...] = ()
    no_defract: bool = False
    default: Name | None = None
    attributes: tuple[Attribute, ...] = ()
    span: Span = NO_SPAN


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Assign(Node):
    """``Name = expr;``."""

    target: Name
    value: Expr
    attributes: tuple[Attribute, ...] = ()
    span: Span = NO_SPAN


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Unpack(Node):
    """``First, Second = expr;`` with two names or more, for a tuple."""

    targets: tuple[Name, ...]
    value: Expr
    attributes: tuple[Attribute, ...] = ()
    span: Span = NO_SPAN


Statement = Assign | Unpack | Contraction


def targets(statement: Statement) -> tuple[Name, ...]:
    """The names that a statement assigns."""
    match statement:
        case Contraction(target):
            return (target.name,)
        case Assign(target):
            return (target,)
        case Unpack(names):
            return names


# --- functions -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Input(Node):
    """A header input: ``X`` (`dims` None: any shape), ``X[]`` (rank 0) or ``X[A, B]``."""

    name: Name
    dims: tuple[Name, ...] | None = None
    span: Span = NO_SPAN


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Function(Node):
    """``function (inputs…) -> (outputs…) { statements… }``; at least one output.

    `functions` are those with names that stand before it in its text, in order. They have `name`, an input or more,
    and none before them; the function that a text describes has no name.
    """

    inputs: tuple[Input, ...]
    outputs: tuple[Name, ...]
    statements: tuple[Statement, ...]
    functions: tuple[Function, ...] = ()
    name: str | None = None
    span: Span = NO_SPAN

    @property
    def name_span(self) -> Span:
        """Where its name stands; of a function without one, the word ``function``."""
        start = self.span.start
        if self.name is not None:
            start = self.span.source.text.find(self.name, start + len("function"))
        return Span(self.span.source, start, start + len(self.name or "function"))


def children(node: Expr) -> tuple[Expr, ...]:
    """The operands of an expression node, left to right."""
    match node:
        case Binary(_, left, right):
            return (left, right)
        case Unary(_, operand):
            return (operand,)
        case Conditional(test, then, otherwise):
            return (test, then, otherwise)
        case Call(_, args):
            return args
        case _:
            return ()


def postorder(root: Expr) -> list[Expr]:
    """Every node of an expression, operands before operators, left to right: evaluate with a value stack."""
    order: list[Expr] = []
    stack = [root]
    while stack:
        node = stack.pop()
        order.append(node)
        stack.extend(children(node))
    order.reverse()
    return order


def formulas(subscripts: Iterable[Subscript]) -> Iterator[Poly]:
    """The index formulas among subscripts, and among the subscripts of those that are data."""
    stack = list(subscripts)[::-1]
    while stack:
        subscript = stack.pop()
        if isinstance(subscript, Ref):
            stack += reversed(subscript.indexes)
        else:
            yield subscript.formula if isinstance(subscript, Border) else subscript
