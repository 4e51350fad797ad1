"""Names that users give: any text that UTF-8 can hold."""

from __future__ import annotations

from tile_runtime.checks import wrong_kind


def checked_name(what: str, name: object) -> str:
    """`name`; TileTypeError for what is no text, or what no text in UTF-8 has (half of a surrogate pair)."""
    if not isinstance(name, str):
        raise wrong_kind(f"the name of {what} is text", name, "such as 'A'")
    if not _is_utf8(name):
        raise wrong_kind(f"the name of {what} is text that UTF-8 can hold", name, "it has half of a surrogate pair")
    return name


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
