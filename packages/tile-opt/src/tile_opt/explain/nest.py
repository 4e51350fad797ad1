"""The loop nest of a scheduled kernel as nested boxes, a colour per binding."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from itertools import groupby

from tile_ir.stripe.nodes import (
    Bind,
    Block,
    Direction,
    Index,
    Refinement,
    Scope,
    Special,
    Statement,
    Sync,
    Transfer,
    Wait,
)
from tile_ir.stripe.printer import print_form
from tile_ir.stripe.walk import blocks_in

from tile_opt.explain.tables import statement_lines
from tile_opt.explain.text import size

MOST_BOXES = 300
MOST_LINES = 8
"""Statements shown of one block."""
BINDS: dict[Bind, str] = {
    Bind.GRID: "work groups",
    Bind.GROUP: "work items",
    Bind.SUBGROUP: "sub-groups",
    Bind.LANE: "lanes of a sub-group",
    Bind.CORE: "cores",
    Bind.NONE: "loop",
    Bind.UNROLL: "unrolled",
    Bind.VECTOR: "vector lanes",
}
"""Bindings in nest order, and what the legend calls them."""


def legend(kernel: Block) -> str:
    """The colours that the kernel's nest has, by name."""
    used = {i.bind for b in blocks_in(kernel) for i in b.indexes if i.value is None}
    keys = "".join(
        f'<span class="key"><i class="bind-{b.value}"></i>{escape(what)}</span>'
        for b, what in BINDS.items()
        if b in used
    )
    return f'<div class="legend">{keys}</div>'


def nest(kernel: Block) -> str:
    """The boxes as HTML. Blocks beyond `MOST_BOXES` are counted, not drawn."""
    out: list[str] = []
    boxes = 0
    # Text waits on the stack to be written after the blocks in front of it.
    stack: list[Block | str] = [kernel]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            out.append(item)
        elif boxes >= MOST_BOXES:
            out.append('<div class="stmt">… another block</div>')
        else:
            boxes += 1
            opened, closed = _frames(item)
            out.append(opened)
            stack.append(closed)
            stack += reversed(list(_contents(item)))
    return f'<div class="nest">{"".join(out)}</div>'


def _frames(block: Block) -> tuple[str, str]:
    """What opens and closes the boxes of a block: one for its name, one for each run of loops bound alike."""
    own = [i for i in block.indexes if i.value is None]
    opened = [f'<div class="blk"><div class="blk-name">{escape(block.name)}{_badges(block)}</div>']
    closed = ["</div>"]
    for bind, loops in groupby(own, key=lambda index: index.bind):
        names = " ".join(f"<b>{escape(i.name)}</b>:{i.range}{_axis(i)}" for i in loops)
        opened.append(
            f'<div class="box bind-{bind.value}"><div class="head">{names}<em>{escape(BINDS[bind])}</em></div>'
        )
        closed.append("</div>")
    return "".join(opened), "".join(closed)


def _axis(index: Index) -> str:
    if index.bind in (Bind.GRID, Bind.GROUP) and index.axis:
        return f"<small> axis {index.axis}</small>"
    return f"<small> ×{index.lanes}</small>" if index.bind is Bind.VECTOR and index.lanes != index.range else ""


def _badges(block: Block) -> str:
    allocs = [r for r in block.refs if r.dir is Direction.ALLOC]
    badges = [f'<span class="chip mem-{r.loc.scope.value}">{escape(_memory(r))}</span>' for r in allocs]
    if block.instr:
        badges.append(f'<span class="chip">{escape(str(block.instr))}</span>')
    forms = [*(f"if {print_form(g)} ≥ 0" for g in block.guard), *(f"{print_form(c)} ≥ 0" for c in block.constraints)]
    return "".join([*badges, *(f'<span class="chip when">{escape(f)}</span>' for f in forms)])


def _memory(ref: Refinement) -> str:
    sizes = [s for s in ref.type.sizes if s != 1]
    shape = "×".join(map(str, sizes)) or "1"
    where = "local" if ref.loc.scope is Scope.GROUP else ref.loc.unit
    bytes_ = ref.type.dtype.bytes
    for s in sizes:
        bytes_ *= s
    return f"{where} {ref.into} {shape} {ref.type.dtype.value} · {size(bytes_)}"


def _contents(block: Block) -> Iterator[Block | str]:
    """Inner blocks, and the statements between them as lines."""
    for nested, run in groupby(block.body, key=lambda s: isinstance(s, Block)):
        statements = list(run)
        if nested:
            yield '<div class="row">'
            yield from (s for s in statements if isinstance(s, Block))
            yield "</div>"
        else:
            yield from _lines(block, tuple(statements))


def _lines(block: Block, statements: tuple[Statement, ...]) -> Iterator[str]:
    names = {r.into: _view(r) for r in block.refs}
    merges = {r.into: r.agg.value for r in block.refs if r.agg is not None and r.agg.value != "assign"}
    for special, run in groupby(statements, key=lambda s: bool(_special(s))):
        if special:
            yield from (f'<div class="stmt sync">{escape(_special(s))}</div>' for s in run)
            continue
        plain = statement_lines(tuple(run), names, merges)
        yield from (f'<div class="stmt">{escape(line)}</div>' for line in plain[:MOST_LINES])
        if len(plain) > MOST_LINES:
            yield f'<div class="stmt">… {len(plain) - MOST_LINES} more operations</div>'


def _view(ref: Refinement) -> str:
    """``D[n, x + i]``; a buffer of one element is its name."""
    at = [print_form(a) for a in ref.access]
    trivial = all(a == "0" for a in at) or not ref.source
    return ref.source or ref.into if trivial else f"{ref.source}[{', '.join(at)}]"


def _special(statement: Statement) -> str:
    match statement:
        case Sync():
            return f"barrier ({statement.scope.value}, {statement.fence})"
        case Transfer():
            return f"transfer {statement.dst} ← {statement.src} {statement.unit}".rstrip()
        case Wait():
            return f"wait for transfers (group {statement.group})"
        case Special():
            return f"{statement.name}({', '.join(statement.ins)}) → {', '.join(statement.outs)}"
        case _:
            return ""
