"""Frozen dataclasses that are made by the hundred thousand: nodes, subscripts, views.

``@dataclass(frozen=True)`` stores each field through ``object.__setattr__``, which looks its name up; that was an
eighth of what compiling a network costs. `frozen` makes the same class and stores through the slots themselves. It
compiles all of a class's methods at once, where a dataclass compiles each, and when the first of them is asked for: that
was a third of a process's first second, and a process makes values of half the classes that it imports.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar, cast, dataclass_transform

T = TypeVar("T")

METHODS = "__init__", "__eq__", "__hash__", "__repr__"

_KEEP: Any = object()


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    """``@dataclass(frozen=True, slots=True)``, several times as quick to make and to change by `replace`.

    TypeError for fields that are no positional parameters.
    """
    # A dataclass would look for the signature that it has not got yet, which takes longer than all else that it does.
    cls.__doc__ = cls.__doc__ or f"{cls.__name__}({', '.join(vars(cls).get('__annotations__', ()))})"
    made: Any = dataclass(slots=True, init=False, repr=False, eq=False)(cls)
    entries: tuple[Field[Any], ...] = fields(made)
    odd = [f.name for f in entries if f.kw_only or not f.init]
    if odd:
        raise TypeError(f"{cls.__name__}: the fields {', '.join(odd)} must be positional parameters")
    late = {name: _Late(name, made, entries) for name in METHODS}
    for name, method in (late | _of_state(made, entries)).items():
        if vars(cls).get(name) is None:  # the class's own stay
            setattr(made, name, method)
    made.__setattr__, made.__delattr__ = _refuse_to_assign, _refuse_to_delete
    return made


def replace(value: T, /, **changes: Any) -> T:
    """As `dataclasses.replace`, several times as quick where all fields that are parameters are positional ones."""
    kind = type(value)
    values_of, places = _shape(kind)
    if not places or not places.keys() >= changes.keys():
        return dataclasses.replace(cast("Any", value), **changes)
    values = [*values_of(value)]
    for name, changed in changes.items():
        values[places[name]] = changed
    return kind(*values)


@cache
def _shape(kind: type) -> tuple[Callable[[Any], tuple[Any, ...]], dict[str, int]]:
    """What reads the fields of a dataclass in the order of its parameters, and their places; no places where it is not that plain."""
    entries = [f for f in fields(cast("Any", kind)) if f.init]
    if len(entries) < 2 or any(f.kw_only for f in entries):
        return tuple, {}
    names = [f.name for f in entries]
    return attrgetter(*names), {name: n for n, name in enumerate(names)}


def _refuse_to_assign(self: object, name: str, _: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: object, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


class _Late:
    """A method in whose place the class has the compiled one, and its others, once it is asked for."""

    def __init__(self, name: str, made: type, entries: tuple[Field[Any], ...]) -> None:
        self.name, self.made, self.entries = name, made, entries

    def __get__(self, value: object, kind: type | None = None) -> Any:
        for name, function in _methods(self.made, self.entries).items():
            if isinstance(vars(self.made)[name], _Late):
                setattr(self.made, name, function)
        return vars(self.made)[self.name].__get__(value, kind)


def _methods(made: type, entries: tuple[Field[Any], ...]) -> dict[str, Callable[..., Any]]:
    """What a frozen dataclass with slots has, from one text; `known` are the names that it uses."""
    known: dict[str, Any] = {"_KEEP": _KEEP}
    parameters, stores = _initialiser(made, entries, known)
    compared = [f.name for f in entries if f.compare]
    hashed = [f.name for f in entries if (f.compare if f.hash is None else f.hash)]
    shown = ", ".join(f"{f.name}={{self.{f.name}!r}}" for f in entries if f.repr)
    text = f"""
def __init__({", ".join(["self", *parameters])}):
 {_lines(stores)}
def __eq__(self, other):
 if other.__class__ is self.__class__:
  return {_tuple("self", compared)} == {_tuple("other", compared)}
 return NotImplemented
def __hash__(self):
 return hash({_tuple("self", hashed)})
def __repr__(self):
 return self.__class__.__qualname__ + f"({shown})"
"""
    exec(text, known)
    methods = {n: known[n] for n in METHODS}
    for name, function in methods.items():
        function.__qualname__ = f"{made.__qualname__}.{name}"
        function.__module__ = made.__module__
    return methods


def _of_state(made: Any, entries: tuple[Field[Any], ...]) -> dict[str, Callable[..., Any]]:
    """What copies and pickles call, seldom enough to be the same functions for every class."""
    names = [f.name for f in entries]
    stores = [getattr(made, name).__set__ for name in names]

    def state(self: object) -> tuple[Any, ...]:
        return tuple([getattr(self, name) for name in names])

    def restore(self: object, values: tuple[Any, ...]) -> None:
        for store, value in zip(stores, values, strict=True):
            store(self, value)

    return {"__getstate__": state, "__setstate__": restore}


def _initialiser(made: Any, entries: tuple[Field[Any], ...], known: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Parameters and lines of `__init__`."""
    parameters = [f.name for f in entries]
    lines: list[str] = []
    for n, f in enumerate(entries):
        known[f"set_{n}"] = getattr(made, f.name).__set__
        given = f.name
        if f.default is not MISSING:
            known[f"default_{n}"] = f.default
            parameters[n] += f"=default_{n}"
        elif f.default_factory is not MISSING:
            known[f"default_{n}"] = f.default_factory
            parameters[n] += "=_KEEP"
            given = f"default_{n}() if {f.name} is _KEEP else {f.name}"
        lines.append(f"set_{n}(self, {given})")
    if hasattr(made, "__post_init__"):
        lines.append("self.__post_init__()")
    return parameters, lines


def _lines(statements: list[str]) -> str:
    return "\n ".join(statements or ["pass"])


def _tuple(owner: str, names: list[str]) -> str:
    return "(" + "".join(f"{owner}.{name}, " for name in names) + ")"
