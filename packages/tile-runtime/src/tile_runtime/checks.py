"""What a caller passes where something of another kind is wanted: one error for all of it."""

from __future__ import annotations

from collections.abc import Collection
from typing import cast

from tile_ir.diagnostics import Diagnostic, TileTypeError

from tile_runtime.signature import Signature


def described(value: object) -> str:
    """The value's type, and the value in at most one short line."""
    text = " ".join(repr(value).split())
    short = text if len(text) <= 60 else text[:59] + "…"
    return short if value is None or text.startswith("<") else f"{type(value).__name__} {short}"


def wrong_kind(wanted: str, value: object, hint: str) -> TileTypeError:
    """The error for a `value` that is not what `wanted` says."""
    return TileTypeError(Diagnostic("TILE-E515", f"{wanted}, not {described(value)}", hint=hint))


def check_function(value: object) -> None:
    """TileTypeError for what cannot be called as a Tile function."""
    if not isinstance(value, Signature):
        hint = "tile.Function(source) makes one from Tile text; tile.compose makes one from others, or from those of tile.jit"
        raise wrong_kind("a Tile function is wanted", value, hint)


def checked_flag(name: str, value: object) -> bool:
    """`value` as True or False; a text such as "no" is neither."""
    if isinstance(value, bool):
        return value
    raise wrong_kind(f"{name} is True or False", value, f"such as {name}=True")


def checked_count(name: str, value: object) -> int:
    """`value` as an integer of at least 1."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    raise wrong_kind(f"{name} is an integer of at least 1", value, f"such as {name}=4")


def checked_names(what: str, value: object) -> tuple[str, ...]:
    """`value`, a name or several, as a tuple."""
    if isinstance(value, str):
        return (value,)
    if isinstance(value, Collection) and not isinstance(value, bytes):
        return tuple(cast("Collection[str]", value))
    raise wrong_kind(f"{what} is the name of an input, or several", value, f"such as {what}='A' or {what}=('A', 'B')")
