"""What can be said of a function before anybody gives it arrays: mistakes that hold whatever the sizes are, and shapes as formulas.

The binder runs twice, with sizes and dtypes that are assumed, other ones each time. What it refuses both times for a reason that has
nothing to do with them is a mistake; a number that is the value of a size in the text both times is shown as that size.
An input without brackets is unknown, and so is what depends on it: nothing is said of either.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from random import Random
from typing import cast

from tile_ir.collector import uncollected
from tile_ir.diagnostics import Diagnostic
from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.program.nodes import TensorType

from tile_lang import ast
from tile_lang.bind import bind_input, bind_output, declared
from tile_lang.builtins import called, sizes_from
from tile_lang.expressions import bind_integer
from tile_lang.limits import DEFAULT_LIMITS, Limits
from tile_lang.printer import print_node
from tile_lang.recalled import Bound, Recall, counted
from tile_lang.scope import Scope
from tile_lang.stated import stated_types
from tile_lang.statements import attempt, bind_dims, bind_statement, output
from tile_lang.values import BindFailure, Const, Failed, Tensor, TupleValue, Value

ANYWAY = frozenset(
    f"TILE-E{number}"
    for number in (101, 102, 103, 104, 105, 106, 108, 109, 110, 111, 112, 114, 115, 116, 117, 122, 123, 124, 129, 131, 136, 137, 141)
)  # fmt: skip
"""Codes of mistakes that no sizes and dtypes would mend: names, ranks, formulas, numbers of arguments."""

UNLIMITED = 1 << 200
_FLOATS = (DType.FLOAT32, DType.FLOAT64)
_VARYING = re.compile(r"\d+|float\d+")


def check(
    function: ast.Function, types: Mapping[str, TensorType] | None = None, limits: Limits = DEFAULT_LIMITS
) -> list[Diagnostic]:
    """The mistakes of a function of which only some inputs have `types`, or none, in source order; never raises.

    The types of inputs that are not given are those that its text states (`tile_lang.stated`), if any.
    """
    stated = stated_types(function.span.source)
    found = Checker(limits).check(function, {**stated.types, **(types or {})}).diagnostics
    return sorted([*stated.diagnostics, *found], key=lambda d: d.span.start if d.span else 0)


@frozen
class Checked:
    """What came of one look at a function and those before it."""

    diagnostics: tuple[Diagnostic, ...]
    """In no order: their places may be in several sources."""
    known: Mapping[str | None, Known]
    """What each function's names are, by the function's name."""


@dataclass(frozen=True)
class Known:
    """What the names of a function stand for, as far as that is known."""

    function: ast.Function
    scopes: tuple[Scope, Scope]

    def describe(self, name: str) -> str | None:
        """``[N, 1]``, ``bool[N, M]``, ``the size 3 * N``; None where nothing is known."""
        one, other = (scope.values.get(name) for scope in self.scopes)
        return None if one is None or other is None else self._shown(one, other)

    def _shown(self, one: Value, other: Value) -> str | None:
        match one, other:
            case Tensor(_, a), Tensor(_, b) if len(a.shape) == len(b.shape):
                sizes = ", ".join(map(self._size, a.shape, b.shape))
                return f"{'' if (a.dtype, b.dtype) == _FLOATS else a.dtype}[{sizes}]"
            case Const(a), Const(b):
                return f"the number {a}" if a == b else f"the size {self._size(a, b)}"
            case TupleValue(a), TupleValue(b) if len(a) == len(b):
                return f"({', '.join(self._shown(x, y) or '?' for x, y in zip(a, b, strict=True))})"
            case _:
                return None

    def _size(self, one: float, other: float) -> str:
        return self._formulas.get((one, other)) or (str(one) if one == other else "?")

    def reworded(self, one: Diagnostic, other: Diagnostic) -> Diagnostic:
        """`one` without what was assumed: numbers that `other` has otherwise are sizes of the text."""
        rest = _VARYING.findall(other.message)
        if len(rest) != len(_VARYING.findall(one.message)):
            return one
        words = iter(rest)
        return replace(one, message=_VARYING.sub(lambda found: self._word(found[0], next(words)), one.message))

    def _word(self, one: str, other: str) -> str:
        if one == other:
            return one
        return "float" if one.startswith("float") else self._size(int(one), int(other)) if other.isdigit() else "?"

    @cached_property
    def _formulas(self) -> Mapping[tuple[float, float], str]:
        """Sizes of the text, by both of their values: the shortest of equal ones."""
        found: dict[tuple[float, float], str] = {}
        for node in _sizes(self.function):
            values = [_value(scope, node) for scope in self.scopes]
            text = print_node(node)
            if None not in values and values[0] != values[1]:
                key = cast("tuple[float, float]", tuple(values))
                found[key] = min(found.get(key, text), text, key=len)
        return found


class Checker:
    """Looks at one version of a function after the other; statements whose names mean what they did are not bound again."""

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        rooms = replace(limits, max_elements=UNLIMITED, max_bytes=UNLIMITED)
        self._binders = tuple(_Binder(salt, dtype, rooms) for salt, dtype in enumerate(_FLOATS))

    def check(self, function: ast.Function, types: Mapping[str, TensorType]) -> Checked:
        """The mistakes of all functions, and what their names are; `types` are those of the last one's inputs."""
        known: dict[str | None, Known] = {}
        found: dict[tuple[object, ...], Diagnostic] = {}
        everything = len(types) == len(function.inputs)
        with uncollected():
            for part in (function, *(replace(f, functions=function.functions) for f in function.functions)):
                own = part is function
                one, other = (b.bind(part, types if own else {}) for b in self._binders)
                known[part.name] = Known(part, (one, other))
                for diagnostic in _common(known[part.name], own and everything):
                    found.setdefault(
                        (diagnostic.code, id(diagnostic.span and diagnostic.span.source), diagnostic.span), diagnostic
                    )
            for binder in self._binders:
                binder.forget()
        return Checked(tuple(found.values()), known)


def _common(known: Known, everything: bool) -> Iterator[Diagnostic]:
    """What is wrong both times; with the types of all inputs, whatever it is."""
    one, other = known.scopes
    others = {(d.code, id(d.span and d.span.source), d.span): d for d in other.diagnostics}
    for diagnostic in one.diagnostics:
        same = others.get((diagnostic.code, id(diagnostic.span and diagnostic.span.source), diagnostic.span))
        if everything:
            yield diagnostic
        elif same is not None and diagnostic.code in ANYWAY:
            yield known.reworded(diagnostic, same)


# --- one assumption ------------------------------------------------------------------------------


@dataclass(slots=True)
class _Binder:
    """Binds functions whose inputs have assumed sizes, and remembers what statements gave."""

    salt: int
    dtype: DType
    limits: Limits
    _names: dict[int, tuple[ast.Statement, frozenset[str]]] = field(
        default_factory=dict[int, "tuple[ast.Statement, frozenset[str]]"]
    )
    """The names in each statement, which is kept, so that no other one gets its identity."""
    _former: dict[int, tuple[ast.Statement, frozenset[str]]] = field(
        default_factory=dict[int, "tuple[ast.Statement, frozenset[str]]"]
    )
    _given: dict[tuple[object, ...], Bound] = field(default_factory=dict[tuple[object, ...], Bound])
    _used: dict[tuple[object, ...], Bound] = field(default_factory=dict[tuple[object, ...], Bound])
    _calls: Recall = field(default_factory=Recall)

    def bind(self, function: ast.Function, types: Mapping[str, TensorType]) -> Scope:
        """The names of the function, and what is wrong with it."""
        scope = Scope(self.limits, local=self._calls.binders(function.functions, self._named))
        assumed = self._types(function, types)
        for node in function.inputs:
            if node.name.id in assumed:
                attempt(scope, lambda node=node: bind_input(scope, node, assumed))
            else:
                attempt(scope, lambda node=node: declared(scope, node))
        bind_dims(scope, function.inputs, {name: type_.shape for name, type_ in assumed.items()})
        for statement in function.statements:
            self._statement(scope, statement)
        first = {o.id: o for o in reversed(function.outputs)}
        for node in function.outputs:
            if function.name is None:
                bind_output(scope, node, first[node.id])
            else:  # what others call may give a thing twice, or a tuple
                attempt(scope, lambda node=node: output(scope, node))
        return scope

    def forget(self) -> None:
        """Drop what the last look did not use."""
        self._given, self._used = self._used, {}
        self._former, self._names = self._names, {}
        self._calls.forget()

    def _types(self, function: ast.Function, types: Mapping[str, TensorType]) -> dict[str, TensorType]:
        """The types of inputs: those that are given, and for others with brackets what is assumed."""
        inputs = [i for i in function.inputs if i.dims is not None]
        found = {i.name.id: types[i.name.id] for i in function.inputs if i.name.id in types}
        sizes: dict[str, int] = {}
        for node in inputs:
            given = found.get(node.name.id)
            sizes |= zip((d.id for d in node.dims or ()), given.shape if given else (), strict=False)
        data = _subscripts(function)
        for node in inputs:
            dtype = DType.INT32 if node.name.id in data else self.dtype
            shape = tuple(sizes[d.id] if d.id in sizes else _size(self.salt, d.id) for d in node.dims or ())
            found.setdefault(node.name.id, TensorType(dtype, shape))
        return found

    def _named(self, node: ast.Statement) -> frozenset[str]:
        found = self._names.get(id(node)) or self._former.get(id(node)) or (node, frozenset(_names(node)))
        self._names[id(node)] = found
        return found[1]

    def _statement(self, scope: Scope, node: ast.Statement) -> None:
        names = self._named(node)
        marks = [self._calls.mark(name) for name in names if name in scope.local]
        key = (id(node), *marks, *((scope.values.get(n), scope.sizes.get(n)) for n in names))
        known = self._given.get(key) or self._used.get(key)
        if known is not None and scope.has_room(known.calls, known.depth):
            self._used[key] = known
            scope.count_calls(known.calls, known.depth)
            _define(scope, node, known.values)
            return
        before, again = len(scope.diagnostics), [t for t in ast.targets(node) if t.id in scope.values]
        bound = counted(scope, lambda: _bound(scope, node))
        failed = again or Failed() in bound.values
        if failed and marks:  # perhaps by a mistake that an earlier call has reported
            return
        if len(scope.diagnostics) == before and failed:
            _unknown(scope, node)
            for target in again:
                attempt(scope, lambda target=target: scope.define(target.id, Failed(), target.span))
        if len(scope.diagnostics) == before:
            self._used[key] = bound


def _bound(scope: Scope, node: ast.Statement) -> tuple[Value, ...]:
    bind_statement(scope, node)
    return tuple(scope.values[t.id] for t in ast.targets(node))


@lru_cache(maxsize=1000)
def _size(salt: int, name: str) -> int:
    """A size that others hardly add up to, and that can be halved, and cut in three, four or five."""
    return 240 * Random(f"{salt} {name}").randrange(11, 999)


def _define(scope: Scope, node: ast.Statement, values: Sequence[Value]) -> None:
    def step() -> None:
        for target, value in zip(ast.targets(node), values, strict=True):
            scope.define(target.id, value, target.span)

    attempt(scope, step)


def _unknown(scope: Scope, statement: ast.Statement) -> None:
    """Names and functions that do not exist, in a statement that uses something of which nothing is known."""
    for node in _nodes(statement, branches=False):
        if isinstance(node, ast.Name) and node.id not in scope.sizes:
            attempt(scope, lambda node=node: scope.lookup(node.id, node.span))
        elif isinstance(node, ast.Call) and node.function not in scope.local:
            attempt(scope, lambda node=node: called(scope, node, [Failed()] * len(node.args)))


# --- what stands in a text -----------------------------------------------------------------------


def _nodes(root: object, branches: bool = True) -> Iterator[ast.Node]:
    """Every node below one, itself included; without `branches` nothing that depends on a condition."""
    stack: list[object] = [root]
    while stack:
        item = stack.pop()
        if isinstance(item, ast.Conditional) and not branches:
            stack.append(item.test)
        elif isinstance(item, ast.Node):
            yield item
            stack += (
                getattr(item, n)
                for n in cast("tuple[str, ...]", getattr(type(item), "__match_args__", ()))
                if n != "span"
            )
        elif isinstance(item, tuple):
            stack += cast("tuple[object, ...]", item)


def _names(statement: ast.Statement) -> Iterator[str]:
    """The names of tensors, sizes and functions."""
    for node in _nodes(statement):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Call):
            yield node.function


def _subscripts(function: ast.Function) -> frozenset[str]:
    """The tensors that are subscripts: they hold integers."""
    found = (s.name.id for c in function.statements if isinstance(c, ast.Contraction) for s in _data(c))
    return frozenset(found)


def _data(node: ast.Contraction) -> Iterator[ast.Ref]:
    stack: list[ast.Subscript] = [*node.target.indexes, *(s for ref in node.body.accesses for s in ref.indexes)]
    while stack:
        subscript = stack.pop()
        if isinstance(subscript, ast.Ref):
            yield subscript
            stack += subscript.indexes


def _sizes(function: ast.Function) -> Iterable[ast.Expr]:
    """Every expression of a text that is a size."""
    for node in function.inputs:
        yield from node.dims or ()
    for statement in function.statements:
        if isinstance(statement, ast.Contraction):
            yield from statement.target.sizes or ()
            continue
        for node in ast.postorder(statement.value):
            first = sizes_from(node.function) if isinstance(node, ast.Call) else None
            if first is not None:
                yield from ast.children(node)[first:]


def _value(scope: Scope, node: ast.Expr) -> int | None:
    try:
        return bind_integer(scope, node, "a size")
    except BindFailure:
        return None
