"""Types of inputs that a text itself states, for editors and `tile check`: a comment ``// shapes: A=float32[3,4] B=int32[]`` at its start."""

from __future__ import annotations

import re

from tile_ir.diagnostics import Diagnostic, Severity, Source, Span
from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.program.nodes import TensorType

_COMMENT = re.compile(r"\s*//[ \t]*(?P<mark>shapes:)?(?P<rest>[^\n]*)")
_ONE = re.compile(r"[^\s\[,]+(?:\[[^\]\n]*\]?)?|[^\s,]+")
"""What spaces, or commas, part."""
_TYPE = re.compile(r"(?P<name>\w+'?)=(?P<dtype>[a-z]\w*)?(?P<sizes>\[[\d,\s]*\])?")
_DTYPES = {d.value: d for d in DType}


@frozen
class Stated:
    """The types by input, and what of the comment cannot be read."""

    types: dict[str, TensorType]
    diagnostics: tuple[Diagnostic, ...] = ()


def stated_types(source: Source) -> Stated:
    """What the comments in front of a text state; float32 where a dtype is left out."""
    types: dict[str, TensorType] = {}
    wrong: list[Diagnostic] = []
    position = 0
    while comment := _COMMENT.match(source.text, position):
        position = comment.end()
        if comment["mark"] is None:
            continue
        for word in _ONE.finditer(source.text, comment.start("rest"), comment.end()):
            found = _TYPE.fullmatch(word[0])
            dtype = _DTYPES.get(found["dtype"] or "float32") if found else None
            if found is None or dtype is None or not (found["dtype"] or found["sizes"]):
                wrong.append(_unread(Span(source, word.start(), word.end())))
            else:
                types[found["name"]] = TensorType(
                    dtype, tuple(int(n) for n in re.findall(r"\d+", found["sizes"] or ""))
                )
    return Stated(types, tuple(wrong))


def _unread(span: Span) -> Diagnostic:
    message = f"{span.text[:40]} is not like A=float32[3,4]"
    return Diagnostic("TILE-W153", message, span, f"the dtypes are {', '.join(_DTYPES)}", (), Severity.WARNING)
