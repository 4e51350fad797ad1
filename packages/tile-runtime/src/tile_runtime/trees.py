"""Values in tuples, lists, dicts, dataclasses and registered types: taken apart into leaves, and put together again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, cast, overload

from tile_ir.diagnostics import Diagnostic, TileTypeError
from tile_ir.frozen import frozen

from tile_runtime.checks import described, wrong_kind


@frozen
class Structure:
    """How leaves are put together; equal for values of the same form."""

    kind: type | None
    """tuple (or a named one), list, dict, NoneType, a dataclass or a registered type; None for a leaf."""
    keys: tuple[Any, ...] = ()
    """Of a dict, in its order; the names of a dataclass's parts; what a registered type keeps beside its parts."""
    parts: tuple[Structure, ...] = ()

    def __str__(self) -> str:
        """``(*, {'h': *})``: an asterisk for each leaf."""
        if self.kind is None:
            return "*"
        if self.kind is type(None):
            return "None"
        if self.kind is dict:
            return "{" + ", ".join(f"{key!r}: {part}" for key, part in zip(self.keys, self.parts, strict=True)) + "}"
        inside = ", ".join(map(str, self.parts))
        if self.kind is list:
            return f"[{inside}]"
        name = "" if self.kind is tuple else self.kind.__name__
        return f"{name}({inside}{',' * (len(self.parts) == 1 and not name)})"

    @property
    def places(self) -> tuple[str, ...]:
        """How each part is reached from the whole: ``[0]``, ``['h']``, ``.weights``."""
        if self.kind is dict:
            return tuple(f"[{key!r}]" for key in self.keys)
        names = self.keys[0] if self.kind is not None and _fields(self.kind) else getattr(self.kind, "_fields", ())
        return tuple(f".{name}" for name in names) or tuple(f"[{k}]" for k in range(len(self.parts)))


LEAF = Structure(None)

Apart = Callable[[Any], tuple[Sequence[Any], Hashable]]
Together = Callable[[Any, Sequence[Any]], Any]
_registered: dict[type, tuple[Apart, Together]] = {}
_leaves: set[type] = set()
"""Types of which leaves were seen."""


def register_tree(kind: type, flatten: Apart, unflatten: Together) -> None:
    """Let values of a type be taken apart where trees of tensors are taken.

    ``flatten(value)`` gives ``(parts, rest)``: parts are leaves or trees, the rest is hashable and not computed with.
    ``unflatten(rest, parts)`` makes the value again. Dataclasses, named tuples, tuples, lists and dicts need none.
    """
    if not isinstance(kind, type):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise wrong_kind("register_tree takes a class", kind, "such as register_tree(Layer, flatten, unflatten)")
    if kind in _registered or kind in (tuple, list, dict, type(None)):
        raise TileTypeError(Diagnostic("TILE-E540", f"{kind.__name__} is known as a tree already"))
    _registered[kind] = (flatten, unflatten)
    _leaves.discard(kind)


@cache
def _fields(kind: type) -> tuple[tuple[str, bool], ...]:
    """Names of a dataclass's parts, and whether each is static: ``field(metadata={"static": True})`` is no tensor."""
    if not dataclasses.is_dataclass(kind):
        return ()
    return tuple((f.name, bool(f.metadata.get("static"))) for f in dataclasses.fields(kind) if f.init)


def _apart(value: Any) -> tuple[type, tuple[Any, ...], Sequence[Any]] | None:
    """Kind, keys and parts of a value (see `Structure`); None for a leaf."""
    kind = cast("type[Any]", type(value))
    if kind in _leaves:
        return None
    if value is None:
        return kind, (), ()
    if isinstance(value, dict):
        table = cast("dict[Any, Any]", value)
        return dict, tuple(table), tuple(table.values())
    if isinstance(value, (tuple, list)):
        return kind, (), cast("Sequence[Any]", value)
    if kind in _registered:
        parts, rest = _registered[kind][0](value)
        return kind, (rest,), parts
    if fields := _fields(kind):
        names = tuple(name for name, static in fields if not static)
        fixed = tuple((name, getattr(value, name)) for name, static in fields if static)
        return kind, (names, fixed), tuple(getattr(value, name) for name in names)
    _leaves.add(kind)
    return None


def flatten(value: Any) -> tuple[list[Any], Structure]:
    """The leaves of a value, in order, and how they were put together; None has no leaves."""
    leaves: list[Any] = []
    try:
        return leaves, _structure(value, leaves)
    except RecursionError:
        message = "a list, dict or the like holds itself, or goes deeper than Python can follow"
        raise TileTypeError(Diagnostic("TILE-E540", message)) from None


def flatten_arguments(args: tuple[Any, ...], named: dict[str, Any]) -> tuple[list[Any], Structure]:
    """The same of ``(args, named)``, of each call of a function: mostly leaves alone, whose structure is made once."""
    if not named and _leaves.issuperset(map(type, args)):
        return [*args], form_of_leaves(len(args))
    leaves, structure = flatten((args, named))
    made = form_of_leaves(len(args))
    return leaves, made if structure == made else structure


@cache
def form_of_leaves(count: int) -> Structure:
    """That of so many positional arguments, leaves each."""
    return Structure(tuple, (), (Structure(tuple, (), (LEAF,) * count), Structure(dict)))


def _structure(value: Any, leaves: list[Any]) -> Structure:
    found = _apart(value)
    if found is None:
        leaves.append(value)
        return LEAF
    kind, keys, parts = found
    return Structure(kind, keys, tuple([_structure(part, leaves) for part in parts]))


def unflatten(structure: Structure, leaves: Iterable[Any]) -> Any:
    """The value whose leaves these are."""
    return _value(structure, iter(leaves))


def _value(structure: Structure, leaves: Iterator[Any]) -> Any:
    kind = structure.kind
    if kind is None:
        return next(leaves)
    if kind is type(None):
        return None
    parts = [_value(part, leaves) for part in structure.parts]
    if kind is dict:
        return dict(zip(structure.keys, parts, strict=True))
    if kind in _registered:
        return _registered[kind][1](structure.keys[0], parts)
    if _fields(kind):
        names, fixed = structure.keys
        return kind(**dict(zip(names, parts, strict=True)), **dict(fixed))
    return kind(*parts) if hasattr(kind, "_fields") else kind(parts)


def paths(structure: Structure, root: str) -> list[str]:
    """How each leaf of a value called `root` is written: ``init[0]['h']``."""
    if structure.kind is None:
        return [root]
    pairs = zip(structure.places, structure.parts, strict=True)
    return [path for place, part in pairs for path in paths(part, root + place)]


def leaves_like(structure: Structure, value: Any, root: str, *, prefix: bool = False) -> list[Any]:
    """The leaves of a value of this structure, in its order: dicts match by key. TileTypeError says where it differs.

    With `prefix` a leaf (or None) may stand for a whole part of the structure: it counts for each leaf of that part.
    """
    if structure.kind is None:
        return [value]
    found = _apart(value)
    if prefix and (found is None or value is None):
        return [value] * len(paths(structure, root))
    if found is None or found[0] is not structure.kind or len(found[2]) != len(structure.parts):
        raise _differs(root, structure, value)
    _, keys, parts = found
    if structure.kind is dict:
        if set(keys) != set(structure.keys):
            raise _differs(root, structure, value)
        parts = [value[key] for key in structure.keys]
    rows = zip(structure.places, structure.parts, parts, strict=True)
    return [leaf for place, part, own in rows for leaf in leaves_like(part, own, root + place, prefix=prefix)]


def _differs(root: str, structure: Structure, value: Any) -> TileTypeError:
    message = f"{root} is {described(value)}, where {structure} is wanted"
    return TileTypeError(Diagnostic("TILE-E540", message, hint="the asterisks stand for tensors"))


@overload
def tree_map(function: Callable[[Any], Any], tree: Any, /) -> Any: ...
@overload
def tree_map(function: Callable[[Any, Any], Any], tree: Any, second: Any, /) -> Any: ...
@overload
def tree_map(function: Callable[[Any, Any, Any], Any], tree: Any, second: Any, third: Any, /) -> Any: ...
@overload
def tree_map(function: Callable[..., Any], tree: Any, /, *rest: Any) -> Any: ...


def tree_map(function: Callable[..., Any], tree: Any, /, *rest: Any) -> Any:
    """`function` of each leaf of `tree`, and of the leaves in its place in the other trees, as a tree of the same form.

    A tree is a leaf, or a tuple, list, dict, dataclass or registered type of trees; None is a tree without leaves.
    TileTypeError where the others have another form.
    """
    leaves, structure = flatten(tree)
    others = [leaves_like(structure, other, f"tree {k + 2}") for k, other in enumerate(rest)]
    return unflatten(structure, [function(*row) for row in zip(leaves, *others, strict=True)])


def tree_leaves(tree: Any) -> list[Any]:
    """The leaves of a tree, in order."""
    return flatten(tree)[0]
