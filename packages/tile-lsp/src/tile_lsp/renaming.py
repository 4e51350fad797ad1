"""Another name for what a name stands for, wherever it stands."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tile_lang.build import BORDERS
from tile_lang.lexer import CONSTANTS, KEYWORDS

from tile_lsp.names import Names, Occurrence, Role

_WORD = re.compile(r"(?P<escape>[#$]?)(?P<word>[A-Za-z][A-Za-z0-9_]*'?)")
_FREE = (Role.BORDER, Role.ATTRIBUTE)
"""What a text does not define."""


class Refused(Exception):
    """A name that cannot be changed, or not to that; the sentence is for the user."""


def renamed(names: Names, one: Occurrence, new: str) -> list[Occurrence]:
    """The places that get the name `new`; Refused where the text would mean something else, or nothing."""
    same = renamable(names, one)
    found = _WORD.fullmatch(new)
    if found is None or (found["escape"] and one.role is Role.FUNCTION):
        raise Refused(f"{new!r} is not a name: letters, digits and underscores, a letter first")
    word = found["word"]
    if not found["escape"] and (word in KEYWORDS or word in CONSTANTS):
        raise Refused(f"{word} is a word of the language")
    if one.role is not Role.FUNCTION and _is_index(found) is not (one.role is Role.INDEX):
        raise Refused(_CASE[one.role is Role.INDEX])
    if word != one.name and any(_clashes(o, one, word) for o in names.all):
        raise Refused(f"{word} has a meaning here already")
    return list(same)


_CASE = {
    True: "indexes begin with a small letter",
    False: "tensors and sizes begin with a capital letter",
}


def renamable(names: Names, one: Occurrence) -> Sequence[Occurrence]:
    """The places of a name that this text defines; Refused for others."""
    same = names.same(one)
    if one.role in _FREE or not names.definitions(one):
        raise Refused(f"{one.name} is not defined in this text")
    if names.is_ambiguous(one):
        raise Refused(f"{one.name} is both a size and a tensor here: which one is meant depends on the place")
    return same


def _is_index(found: re.Match[str]) -> bool:
    return found["escape"] == "$" or (not found["escape"] and found["word"][0].islower())


def _clashes(other: Occurrence, one: Occurrence, word: str) -> bool:
    """Whether another thing that the place of `one` can see is called so."""
    if other.name != word:
        return False
    if one.role is Role.FUNCTION:
        return other.role is Role.FUNCTION or (other.role is Role.BORDER and word in BORDERS)
    if one.role is Role.INDEX:
        return other.role is Role.INDEX and other.piece == one.piece
    return other.function == one.function and other.role in (Role.INPUT, Role.SIZE, Role.TENSOR)
