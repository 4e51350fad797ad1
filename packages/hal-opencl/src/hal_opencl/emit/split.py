"""Vectors of lane counts that OpenCL C lacks become several vectors it has (32 lanes: 16 and 16; 6: 4 and 2)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cache, partial

from tile_ir.dtype import DType
from tile_ir.emit.walker import children, map_block, walk_expr, with_children
from tile_ir.semtree.nodes import (
    Assign,
    Binary,
    Block,
    Const,
    Expr,
    Extract,
    Insert,
    Iota,
    Let,
    Load,
    ReduceLanes,
    Shuffle,
    Splat,
    Statement,
    Store,
    Type,
    Var,
)  # fmt: skip

from hal_opencl.emit.types import WIDTHS

Piece = tuple[int, int]
"""First lane and number of lanes of a part."""


@cache
def pieces(lanes: int, most: int = WIDTHS[0]) -> tuple[Piece, ...]:
    """How a vector is cut: as few parts of OpenCL's widths, of at most `most` lanes, as possible."""
    result: list[Piece] = []
    start = 0
    while start < lanes:
        width = next(w for w in WIDTHS if w <= min(most, lanes - start))
        result.append((start, width))
        start += width
    return tuple(result)


def split_vectors(block: Block, vectors: Collection[Type], most: int = WIDTHS[0]) -> Block:
    """The block, whose vectors are of these types, with those of 2, 4, 8 and 16 lanes only, and of at most `most`."""
    if not any(_wide(vector, most) for vector in vectors):
        return block
    return map_block(block, None, partial(_statement, most))


def _wide(t: Type, most: int) -> bool:
    return t.lanes > most or t.lanes not in WIDTHS


def _statement(most: int, statement: Statement) -> Sequence[Statement]:
    parts = {id(child): _parts(child, most) for child in children(statement)}
    match statement:
        case Let(name, value) if len(parts[id(value)]) > 1:
            return [replace(statement, name=_name(name, n), value=v) for n, v in enumerate(parts[id(value)])]
        case Assign(name, value) if len(parts[id(value)]) > 1:
            values = parts[id(value)]
            temps = [Let(f"{_name(name, n)} new", v) for n, v in enumerate(values)]
            return [
                *temps,
                *(Assign(_name(name, n), Var(f"{_name(name, n)} new", v.type)) for n, v in enumerate(values)),
            ]
        case Store(_, _, value, mask) if len(parts[id(value)]) > 1:
            cut = pieces(value.type.lanes, most)
            return _stores(statement, cut, parts[id(value)], parts[id(mask)] if mask is not None else None)
        case _:
            return (with_children(statement, [parts[id(child)][0] for child in children(statement)]),)


def _stores(node: Store, cut: Sequence[Piece], values: Sequence[Expr], masks: Sequence[Expr] | None) -> list[Statement]:
    result: list[Statement] = [Let(f"store {n}", v) for n, v in enumerate(values)]
    for n, (value, (start, _)) in enumerate(zip(values, cut, strict=True)):
        align = _align(node.align, start, node.value.type.dtype)
        result.append(
            replace(node, index=_plus(node.index, start), value=Var(f"store {n}", value.type),
                    mask=masks[n] if masks else None, align=align)
        )  # fmt: skip
    return [Block(tuple(result))]


def _name(name: str, number: int) -> str:
    return f"{name} part {number}"


def _plus(index: Expr, number: int) -> Expr:
    return Binary("add", index, Const(number, index.type), index.type) if number else index


def _align(align: int, start: int, dtype: DType) -> int:
    return align if align and start * dtype.bytes % align == 0 else 0


def _parts(root: Expr, most: int) -> list[Expr]:
    """The parts of an expression; one for a width that is kept."""
    done: dict[int, list[Expr]] = {}
    for node in walk_expr(root):
        below = [done[id(child)] for child in children(node)]
        if _wide(node.type, most):
            done[id(node)] = _cut(node, pieces(node.type.lanes, most), below)
        elif any(len(parts) > 1 for parts in below):
            done[id(node)] = [_whole(node, below)]
        else:
            done[id(node)] = [with_children(node, [parts[0] for parts in below])]
    return done[id(root)]


def _cut(node: Expr, cut: Sequence[Piece], below: list[list[Expr]]) -> list[Expr]:
    """The parts of a node that has too many lanes."""
    match node:
        case Var(name):
            return [Var(_name(name, n), Type(node.type.dtype, width)) for n, (_, width) in enumerate(cut)]
        case Iota(t):
            return [_iota(t, start, width) for start, width in cut]
        case Insert(_, lane):
            return [_inserted(old, lane - start, below[1][0]) for old, (start, _) in zip(below[0], cut, strict=True)]
        case Shuffle(left, _, lanes):
            sources = [*_lanes(below[0]), *_lanes(below[1])]
            del left
            return [_collect([sources[lane] for lane in lanes[start : start + width]]) for start, width in cut]
        case Splat():
            value = below[0][0]
            return [value if width == 1 else Splat(value, Type(node.type.dtype, width)) for _, width in cut]
        case Load(ptr, index, _, _, align):
            masks = below[2] if len(below) > 2 else [None] * len(cut)
            return [
                Load(ptr, _plus(index, s), Type(node.type.dtype, w), m, _align(align, s, node.type.dtype))
                for (s, w), m in zip(cut, masks, strict=True)
            ]
        case _:
            return [_chunk(node, below, n, width) for n, (_, width) in enumerate(cut)]


def _chunk(node: Expr, below: list[list[Expr]], number: int, width: int) -> Expr:
    parts = [parts[number] if len(parts) > 1 else parts[0] for parts in below]
    return replace(with_children(node, parts), type=Type(node.type.dtype, width))  # type: ignore[call-arg]


def _iota(t: Type, start: int, width: int) -> Expr:
    if width == 1:
        return Const(start, Type(t.dtype))
    part = Type(t.dtype, width)
    return Binary("add", Iota(part), Const(start, part), part) if start else Iota(part)


def _inserted(old: Expr, lane: int, value: Expr) -> Expr:
    if not 0 <= lane < old.type.lanes:
        return old
    return value if old.type.lanes == 1 else Insert(old, lane, value, old.type)


def _lanes(parts: list[Expr]) -> list[Expr]:
    return [
        part if part.type.lanes == 1 else Extract(part, lane, part.type.scalar)
        for part in parts
        for lane in range(part.type.lanes)
    ]


def _collect(lanes: list[Expr]) -> Expr:
    if len(lanes) == 1:
        return lanes[0]
    t = Type(lanes[0].type.dtype, len(lanes))
    result: Expr = Const(0, t)
    for number, lane in enumerate(lanes):
        result = Insert(result, number, lane, t)
    return result


def _whole(node: Expr, below: list[list[Expr]]) -> Expr:
    """A node of a width OpenCL has, on operands that were cut."""
    match node:
        case Extract(_, lane):
            return _lanes(below[0])[lane]
        case Shuffle(_, _, lanes):
            sources = [*_lanes(below[0]), *_lanes(below[1])]
            return _collect([sources[lane] for lane in lanes])
        case ReduceLanes(agg):
            return _tree(agg.op, _lanes(below[0]))
        case _:
            raise TypeError(f"{type(node).__name__} of {node.type.lanes} lanes on wider operands")


def _tree(op: str, values: list[Expr]) -> Expr:
    """Lane i with lane i + lanes/2; an odd lane out stays for the next round."""
    while len(values) > 1:
        low = len(values) // 2
        merged: list[Expr] = [Binary(op, values[n], values[low + n], values[n].type) for n in range(low)]
        values = merged + values[2 * low :]
    return values[0]
