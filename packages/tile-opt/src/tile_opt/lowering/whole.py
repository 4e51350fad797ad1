"""Recognising kernels that only zero or copy a whole buffer: they need no code; and those that copy cells in their places."""

from __future__ import annotations

from tile_ir.frozen import frozen
from tile_ir.stripe import nodes as stripe
from tile_ir.stripe.affine import Affine, DivMod

from tile_opt.lowering.forms import Env, linear, resolve


@frozen
class WholeMove:
    """Buffer `target` (a name of main) becomes zero, or a copy of `source`."""

    target: str
    source: str | None


def whole_move(kernel: stripe.Statement) -> WholeMove | None:
    """The move that `kernel` is, if it is one: a nest of single blocks around ``store(0)`` or ``store(load)``."""
    env: Env = {}
    ranges: dict[str, int] = {}
    views: Views = {}
    block = kernel
    depth = 0
    while isinstance(block, stripe.Block):
        if block.constraints or block.guard or any(not r.source or r.agg for r in block.refs):
            return None
        env = _indexes(block, env, ranges, depth)
        views_in = {r.into: _view(r, env, views) for r in block.refs}
        if any(v is None for v in views_in.values()):
            return None
        views = {name: v for name, v in views_in.items() if v is not None}
        if len(block.body) != 1 or not isinstance(block.body[0], stripe.Block):
            return _leaf(block.body, views, ranges)
        block = block.body[0]
        depth += 1
    return None


Views = dict[str, tuple[str, Affine, stripe.Refinement]]


def copied(kernel: stripe.Block) -> tuple[tuple[str, str], ...]:
    """(to, from) of a kernel that copies cells of buffers (names of main) to the same cells of others; () where it does more."""
    found: dict[tuple[str, str], None] = {}
    return tuple(found) if _copies(kernel, {}, {}, 0, found) else ()


def _copies(block: stripe.Block, env: Env, views: Views, depth: int, found: dict[tuple[str, str], None]) -> bool:
    if any(not r.source or r.agg for r in block.refs):
        return False
    env = _indexes(block, env, {}, depth)
    inside = {r.into: _view(r, env, views) for r in block.refs}
    known = {name: v for name, v in inside.items() if v is not None}
    if len(known) < len(inside):
        return False
    blocks = [s for s in block.body if isinstance(s, stripe.Block)]
    if blocks:
        return len(blocks) == len(block.body) and all(_copies(b, env, known, depth + 1, found) for b in blocks)
    match block.body:
        case (stripe.Load(value, source, (), False), stripe.Store(target, stored, (), False, False)) if value == stored:
            (name, form, top), (origin, other, from_top) = known[target], known[source]
            found[name, origin] = None
            return form == other and (top.type.dtype, top.type.strides) == (from_top.type.dtype, from_top.type.strides)
        case _:
            return False


def _indexes(block: stripe.Block, outer: Env, ranges: dict[str, int], depth: int) -> Env:
    env: dict[str, Affine] = {}
    for index in block.indexes:
        if index.value is not None:
            env[index.name] = resolve(index.value, outer)
        else:
            name = f"{depth}.{index.name}"
            ranges[name] = index.range
            env[index.name] = Affine.var(name) if index.range > 1 else Affine()
    return env


def _view(ref: stripe.Refinement, env: Env, views: Views) -> tuple[str, Affine, stripe.Refinement] | None:
    if any(isinstance(form, DivMod) for form in ref.access):
        return None
    root, offset, top = views.get(ref.source, (ref.source, Affine(), ref))
    affine, _ = linear(ref.access, ref.type.strides)
    return root, resolve(affine, env, offset), top


def _leaf(
    body: tuple[stripe.Statement, ...],
    views: Views,
    ranges: dict[str, int],
) -> WholeMove | None:
    match body:
        case (stripe.Const(value, literal), stripe.Store(target, stored, (), False, False)) if value == stored:
            name, form, top = views[target]
            zero = repr(literal) in ("0", "0.0", "False")
            return WholeMove(name, None) if zero and _covers(form, ranges, top.type.extent) else None
        case (stripe.Load(value, source, (), False), stripe.Store(target, stored, (), False, False)) if value == stored:
            (name, form, top), (origin, other, from_top) = views[target], views[source]
            same = form == other and name != origin and top.type == from_top.type
            return WholeMove(name, origin) if same and _covers(form, ranges, top.type.extent) else None
        case _:
            return None


def _covers(form: Affine, ranges: dict[str, int], elements: int) -> bool:
    """True when the form takes every value 0 … elements - 1 once: its coefficients are a mixed radix."""
    if form.const:
        return False
    step = 1
    for name, coefficient in sorted(form.terms, key=lambda t: t[1]):
        if coefficient != step:
            return False
        step *= ranges[name]
    used = {n for n, _ in form.terms}
    return step == elements and all(r == 1 or n in used for n, r in ranges.items())
