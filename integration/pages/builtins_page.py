"""The reference of the language: every function, operator, aggregation and border with an example and its derivative."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import tile_autodiff
import tile_lang
from tile_autodiff.rules import RULES, Rule
from tile_ir.diagnostics import Source, TileError
from tile_ir.dtype import from_numpy
from tile_ir.ops import OPS
from tile_ir.program.nodes import Program, TensorType
from tile_lang.reference import GROUPS, Array, Entry

from pages.markdown import anchor, details, fenced, table

HEAD = """\
# Every function and operator

What Tile has, with an example that was run when this page was made, and the derivative that `tile.vjp` takes. `#d_Z` is the
derivative that comes in, `#d_X` the one that goes out: programs of Tile like any other. [The language by example](../language.md) is where to
begin; [Operations, exactly](../operations.md) says what happens at the borders of each dtype.
"""


def page() -> str:
    return "\n".join([HEAD, *_index(), *(part for title in GROUPS for part in _group(title))])


def _index() -> Iterator[str]:
    for title, entries in GROUPS.items():
        links = " ".join(f"[`{name}`](#{_anchor(title, name)})" for name in entries)
        yield f"**{title}**: {links}\n"


def _group(title: str) -> Iterator[str]:
    yield f"## {title}\n"
    for name, entry in GROUPS[title].items():
        yield f"### `{name}` {{: #{_anchor(title, name)} }}\n"
        yield f"`{entry.call}`: {entry.says}.\n"
        yield _example(entry)
        yield from _derivative(name, entry)


def _anchor(title: str, name: str) -> str:
    return f"{title.split()[0].lower()}-{anchor(name)}"


def _example(entry: Entry) -> str:
    """The example's text, its inputs and what came out."""
    result = tile_lang.evaluate(_bound(entry), entry.arrays)["Z"]
    given = [(f"`{name}`", _values(array)) for name, array in entry.arrays.items()]
    rows = [*given, ("`Z`", _values(result))]
    return f"{fenced(entry.source, 'tile')}\n{table(('', ''), rows)}"


def _bound(entry: Entry) -> Program:
    types = {n: TensorType(from_numpy(a.dtype), a.shape) for n, a in entry.arrays.items()}
    return tile_lang.bind(tile_lang.parse(Source(entry.source, "example")), types)


def _values(array: Array) -> str:
    if array.size > 16:
        return f"{array.dtype}{list(array.shape)}"
    return f"`{np.array2string(array, separator=', ', precision=7, floatmode='unique')}` {array.dtype}"


def _derivative(name: str, entry: Entry) -> Iterator[str]:
    """The program that computes it, where there is one, and what the rule says of where it holds."""
    rule = RULES.get(name) or RULES.get(_operation(name))
    if rule is not None:
        yield f"Derivative: {_where(rule)}.\n"
    program = _gradient(entry)
    if program is not None:
        yield details("The derivative as a program", fenced(program, "tile"))
    elif rule is None:
        yield "Derivative: none, the result has none.\n"


def _operation(name: str) -> str:
    """The operation behind an operator."""
    if name == "- (prefix)":
        return "neg"
    return next((op.name for op in OPS.values() if op.symbol == name), "")


def _where(rule: Rule) -> str:
    return rule.domain if rule.source == "calculus" else f"{rule.domain} ({rule.source})"


def _gradient(entry: Entry) -> str | None:
    program = _bound(entry)
    floats = tuple(n for n, a in entry.arrays.items() if a.dtype.kind == "f")
    if not floats or not all(t.dtype.is_float for t in _outputs(program)):
        return None
    try:
        return tile_autodiff.to_tile(tile_autodiff.gradient(program, floats)).strip()
    except TileError:
        return None


def _outputs(program: Program) -> Iterable[TensorType]:
    types = program.types()
    return (types[name] for _, name in program.outputs)
