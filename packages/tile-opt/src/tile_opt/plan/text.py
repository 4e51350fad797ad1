"""The text form of plans: what `tile plan` prints, a person edits, and golden tests hold.

    plan C {
      grid m:48 n:1024                  // a point of a level covers so many iterations of each loop
      serial n:64
        stage B in L2 as [k, n]         // one copy for each point of the level above
      serial m:6
      serial k:1
      unroll m:1
      vector n:1 x16                    // registers of 16 elements
      reduce k across lanes x16         // partial results side by side
      edge n overlap
      because "one panel of B stays in L2"
    }

A level's loops stand in the order of the nest; ``n:16/4`` deals 16 iterations out in pieces of 4. A staging above the
first level is made before the kernel. `print_plans` and `parse_plans` are inverse to each other.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from tile_ir.diagnostics import Diagnostic, Source, Span, TileSyntaxError
from tile_ir.frozen import frozen
from tile_ir.stripe.nodes import Bind, Scope
from tile_ir.stripe.syntax import Fault

from tile_opt.plan.plan import Cover, Instruction, Level, Plan, Reduction, Staging

if TYPE_CHECKING:
    from tile_opt.plan.reader import PlacedPlan

BIND_WORDS = {bind: "serial" if bind is Bind.NONE else bind.value for bind in Bind}
WORDS = frozenset({
    "across", "as", "at", "base", "because", "bits", "by", "core", "device", "edge", "grid", "group", "groups", "in",
    "instruction", "items", "lane", "lanes", "mask", "ordered", "overlap", "pad", "peel", "plan", "reduce", "scan",
    "serial", "shift", "stage", "subgroup", "swizzle", "thread", "to", "unroll", "vector", "versions",
})  # fmt: skip
"""What has a meaning of its own; a name that is one of them stands in quotes."""
_BARE = re.compile(r"(?!x\d+\Z)[^\W\d][\w.']*")
_KINDS = {
    "NAME": "a name",
    "STRING": "a string in quotes",
    "INT": "a number",
    "TIMES": "a count such as x4",
    "_NL": "the end of the line",
    "COLON": "':'",
    "SLASH": "'/'",
    "COMMA": "','",
    "EQUAL": "'='",
    "LSQB": "'['",
    "RSQB": "']'",
    "LBRACE": "'{'",
    "RBRACE": "'}'",
}


@frozen
class Entry:
    """Which line of a plan: its kind ("plan", "level", "stage", "reduce", "edge", "instruction") and number there."""

    kernel: str
    kind: str = "plan"
    number: int = 0


class Plans(dict[str, Plan]):
    """Plans by kernel name, which print as their text.

    `places` says where each entry stands in the text that they were read from, `remarks` what a reader should know of
    each kernel: lines that stand above its plan.
    """

    def __init__(
        self,
        plans: Mapping[str, Plan],
        places: Mapping[Entry, Span] | None = None,
        remarks: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        super().__init__(plans)
        self.places = places or {}
        self.remarks = remarks or {}

    def text(self, kernel: str) -> str:
        """The text of one plan."""
        return _plan(kernel, self[kernel], self.remarks.get(kernel, ()))

    def __str__(self) -> str:
        return print_plans(self, self.remarks)

    __repr__ = __str__


# --- printing --------------------------------------------------------------------------------------


def print_plans(plans: Mapping[str, Plan], remarks: Mapping[str, Sequence[str]] | None = None) -> str:
    """The text of plans by kernel name, each below its remarks."""
    return "\n".join(_plan(name, plan, (remarks or {}).get(name, ())) for name, plan in plans.items())


def brief(plan: Plan) -> str:
    """A plan on one line: its levels, and what it stages."""
    staged = [f"stage {_name(s.operand)} in {_name(s.unit)}" for s in plan.stagings]
    return " · ".join([*map(_level, plan.levels), *staged]) or plan.reason or "loops as they are"


def _plan(name: str, plan: Plan, remarks: Sequence[str]) -> str:
    above = [f"// {' '.join(line.split())}" for line in remarks]
    reason = [f"because {_quoted(plan.reason)}"] if plan.reason else []
    return "\n".join([*above, f"plan {_name(name)} {{", *(f"  {line}" for line in (*plan_lines(plan), *reason)), "}\n"])


def plan_lines(plan: Plan) -> list[str]:
    """What a plan says, but for its reason, a decision a line."""
    return [
        *_nest(plan),
        *map(_reduction, plan.reductions),
        *(f"edge {_name(loop)} {edge.value}" for loop, edge in plan.edges),
        *([_instruction(plan.instruction)] if plan.instruction is not None else []),
    ]


def _nest(plan: Plan) -> Iterator[str]:
    """Levels, and stagings under their own: one whose level has gone by, or is not there, says which it is."""
    waiting = list(plan.stagings)
    for number in range(-1, len(plan.levels)):
        if number >= 0:
            yield _level(plan.levels[number])
        while waiting and (waiting[0].level <= number or number == len(plan.levels) - 1):
            staging = waiting.pop(0)
            where = "" if staging.level == number else f" at {staging.level}"
            yield f"{'  ' if number >= 0 else ''}{_staging(staging)}{where}"


def _level(level: Level) -> str:
    ordered = ["ordered"] if level.ordered else []
    lanes = [f"x{level.lanes}"] if level.lanes != 1 else []
    return " ".join([*ordered, BIND_WORDS[level.bind], *map(_cover, level.covers), *lanes])


def _cover(cover: Cover) -> str:
    return f"{_name(cover.loop)}:{cover.size}" + (f"/{cover.stride}" if cover.stride else "")


def _staging(staging: Staging) -> str:
    parts = [f"stage {_name(staging.operand)} in {_name(staging.unit)}"]
    parts += [f"as [{', '.join(map(_name, staging.order))}]"] if staging.order else []
    parts += [f"by {staging.scope.value}"] if staging.scope is not Scope.THREAD else []
    parts += [f"pad {staging.pad}"] if staging.pad else []
    if (swizzle := staging.swizzle) is not None:
        parts.append(f"swizzle bits={swizzle.bits} base={swizzle.base} shift={swizzle.shift}")
    parts += [f"versions {staging.versions}"] if staging.versions != 1 else []
    parts += [f"to {_name(staging.dtype)}"] if staging.dtype else []
    return " ".join(parts)


def _reduction(reduction: Reduction) -> str:
    ways = f" x{reduction.ways}" if reduction.ways != 1 else ""
    return f"reduce {_name(reduction.loop)} across {reduction.across.value}{ways}"


def _instruction(instruction: Instruction) -> str:
    roles = [f"{_name(role)}={_name(loop)}" for role, loop in instruction.loops]
    return " ".join([f"instruction {_name(instruction.name)}", *roles])


def _name(name: str) -> str:
    return name if _BARE.fullmatch(name) and name not in WORDS else _quoted(name)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


# --- parsing ---------------------------------------------------------------------------------------


def parse_plans(text: str | Source) -> Plans:
    """The plans of a text by kernel name; TileSyntaxError with the place where it is not plan text."""
    source = text if isinstance(text, Source) else Source(text, "<plan>")
    read = _read(source)
    places: dict[Entry, Span] = {}
    for placed in read:
        name, start = str(placed.name), placed.name.start_pos or 0
        places[Entry(name)] = Span(source, start, placed.name.end_pos or start)
        count = Counter[str]()
        for line in placed.lines:
            places[Entry(name, line.kind, count[line.kind])] = Span(source, line.start, line.end)
            count[line.kind] += 1
    return Plans({str(placed.name): placed.plan for placed in read}, places)


def _read(source: Source) -> tuple[PlacedPlan, ...]:
    from lark.exceptions import UnexpectedInput, VisitError

    from tile_opt.plan.reader import Reader  # pyright: ignore[reportUnknownVariableType]

    reader = cast("Any", Reader())
    try:
        return reader.transform(_lark().parse(source.text + "\n"))  # the last line may lack its end
    except UnexpectedInput as error:
        raise TileSyntaxError(_unexpected(source, error)) from None
    except VisitError as error:
        if isinstance(error.orig_exc, Fault):
            raise TileSyntaxError(_fault(source, error.orig_exc)) from None
        raise


@cache
def _lark() -> Any:
    from lark import Lark

    lark: Any = Lark
    return lark.open("plan.lark", rel_to=__file__, parser="lalr", maybe_placeholders=True, propagate_positions=True)


def _unexpected(source: Source, error: Any) -> Diagnostic:
    """What lark could not read: a character that starts nothing, a word out of place, or the end."""
    token: Any = getattr(error, "token", None)
    start: int = (error.pos_in_stream if token is None else token.start_pos) or 0
    expected = sorted(error.allowed if token is None else error.expected)
    found: str = source.text[start : start + 1] if token is None else str(token)
    if start >= len(source.text) or (token is not None and token.type == "$END"):
        end = len(source.text.rstrip())
        message = "the text ends in the middle of a plan"
        return Diagnostic("TILE-E621", message, Span(source, end, end), _hint("", expected))
    if found.startswith(("\n", "//")):
        return Diagnostic("TILE-E621", "the line cannot end here", Span(source, start, start + 1), _hint("", expected))
    span = Span(source, start, start + len(found))
    return Diagnostic("TILE-E621", f"{found!r} cannot stand here", span, _hint(found, expected))


def _hint(found: str, expected: list[str]) -> str:
    close = get_close_matches(found, [name.lower() for name in expected if name.lower() in WORDS], n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]!r}?"
    *most, last = (_KINDS.get(name, name.lower()) for name in expected)
    return f"expected {', '.join(most)} or {last}" if most else f"expected {last}"


def _fault(source: Source, fault: Fault) -> Diagnostic:
    start = getattr(fault.token, "start_pos", None)
    span = None if start is None else Span(source, start, getattr(fault.token, "end_pos", start))
    return Diagnostic("TILE-E622", fault.message, span, fault.hint)
