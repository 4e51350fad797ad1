"""Calls of a text's functions, remembered from one version of it to the next: what says the same gives the same types for the same types.

Only types are right of what is remembered: such a call makes no operations. One that fails is bound anew, since its mistakes say where.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from tile_ir.diagnostics import Span
from tile_ir.frozen import frozen

from tile_lang import ast
from tile_lang.local import binders
from tile_lang.scope import LocalFunction, Scope
from tile_lang.values import Const, Draw, Failed, Tensor, TupleValue, Value

Names = Callable[[ast.Statement], frozenset[str]]
"""The names in a statement."""


@frozen
class Bound:
    """What was bound, how many calls that took, and how deep they went."""

    values: tuple[Value, ...]
    calls: int
    depth: int


@dataclass(slots=True)
class Recall:
    """What calls gave in the last look at a text, and in this one."""

    _functions: Sequence[ast.Function] = ()
    """Those of this look, which keeps them: a function is known by the identities of its parts."""
    _local: Mapping[str, LocalFunction] = field(default_factory=dict[str, LocalFunction])
    _marks: Mapping[Hashable, int] = field(default_factory=dict[Hashable, int])
    """A number for what a function says, with all that it calls."""
    _own: Mapping[str, int] = field(default_factory=dict[str, int])
    """That of each function."""
    _given: dict[Hashable, Bound] = field(default_factory=dict[Hashable, Bound])
    _used: dict[Hashable, Bound] = field(default_factory=dict[Hashable, Bound])
    _numbers: Iterator[int] = field(default_factory=count)

    def binders(self, functions: Sequence[ast.Function], names: Names) -> Mapping[str, LocalFunction]:
        """What binds a call of each of the functions, by name, unless it is remembered."""
        if functions is not self._functions:
            said = _said(functions, names)
            self._marks = {s: self._marks[s] if s in self._marks else next(self._numbers) for s in said.values()}
            self._own = {name: self._marks[s] for name, s in said.items()}
            self._local = {n: self._recalled(self._own[n], bind) for n, bind in binders(functions).items()}
            self._functions = functions
        return self._local

    def mark(self, name: str) -> int:
        """The number for what the function of that name says."""
        return self._own[name]

    def forget(self) -> None:
        """Drop what the last look did not use."""
        self._given, self._used = self._used, {}

    def _recalled(self, mark: int, bind: LocalFunction) -> LocalFunction:
        def call(caller: Scope, args: Sequence[Value], span: Span) -> Value:
            key = (mark, *map(_kind, args))
            known = self._used.get(key) or self._given.get(key)
            if known is not None and caller.has_room(known.calls, known.depth):
                caller.count_calls(known.calls, known.depth)
            else:
                known = counted(caller, lambda: (bind(caller, args, span),))
            self._used[key] = known
            return _renamed(known.values[0])

        return call


def counted(scope: Scope, bind: Callable[[], tuple[Value, ...]]) -> Bound:
    """What `bind` gives, with the calls that it makes."""
    tally = scope.tally
    calls, deepest, tally.deepest = tally.calls, tally.deepest, len(scope.calls)
    try:
        values = bind()
        return Bound(values, tally.calls - calls, tally.deepest - len(scope.calls))
    finally:
        tally.deepest = max(deepest, tally.deepest)


def _said(functions: Sequence[ast.Function], names: Names) -> dict[str, Hashable]:
    """What each function says, and all that it calls: the same for another version's that is made of the same parts."""
    own = {f.name: (f.name, id(f.inputs), id(f.outputs), *map(id, f.statements)) for f in functions if f.name}
    calls = {f.name: frozenset[str]().union(*map(names, f.statements)) & own.keys() for f in functions if f.name in own}
    reached: dict[str, frozenset[str]] = {}
    for name in own:
        _reach(name, calls, reached)
    return {name: frozenset(own[r] for r in reached[name]) | {name} for name in own}


def _reach(name: str, calls: Mapping[str, frozenset[str]], reached: dict[str, frozenset[str]]) -> frozenset[str]:
    """A function and those that it calls, and those call. Of those that call themselves nothing is remembered: they fail."""
    if name not in reached:
        reached[name] = frozenset({name})
        reached[name] = reached[name].union(*(_reach(c, calls, reached) for c in calls[name]))
    return reached[name]


def _kind(value: Value) -> Hashable:
    """What of an argument decides about types."""
    match value:
        case Tensor(_, type_):
            return type_
        case Const(number):
            return (type(number), repr(number))
        case TupleValue(items):
            return (TupleValue, *map(_kind, items))
        case Draw(drawn, state):
            return (Draw, drawn.type, state.type)
        case Failed():
            return Failed


def _renamed(value: Value) -> Value:
    """The value by a name that says its type: its own means something else elsewhere, and whatever has this one is alike."""
    match value:
        case Tensor(_, type_):
            return Tensor(f"_{type_}", type_)
        case TupleValue(items):
            return TupleValue(tuple(map(_renamed, items)))
        case Draw(drawn, state):
            return Draw(Tensor(f"_{drawn.type}", drawn.type), Tensor(f"_{state.type}", state.type))
        case _:
            return value
