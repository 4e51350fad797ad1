"""Laying two programs of one source side by side: where the larger one holds what the smaller one holds.

The claim, operation by operation: at every place within the shape of the smaller program's value, the larger program's
value is the same; what lies outside is arbitrary. A contraction keeps the claim when the index tuples that give cells
inside are the same in both. Those that the larger one has besides must contribute nothing, which `masks` sees to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tile_ir.program.liveness import defined_by, used_by
from tile_ir.program.nodes import (
    Argsort,
    ConstantTensor,
    Contraction,
    Elementwise,
    Gather,
    IndexOf,
    Loop,
    Op,
    Program,
    Reshape,
    Scatter,
)
from tile_ir.program.rename import renamed

from tile_onnx.padding.literals import literals, without_literals
from tile_onnx.padding.masks import contraction
from tile_onnx.padding.needs import Needs, OtherForm, Refused
from tile_onnx.padding.pair import Pair
from tile_onnx.padding.rules import argsort, constant, elementwise, gather, index_of, reshape, scatter


def compared(small: Program, large: Program) -> Needs:
    """What `large` needs so that it gives what `small` gives, inside; Refused where that is not known to hold."""
    counts = [(len(p.inputs), len(p.ops), len(p.outputs)) for p in (small, large)]
    if counts[0] != counts[1]:
        raise OtherForm(None, "the two sizes lead to programs of different steps")
    pair = Pair(small, large)
    for number, (ours, theirs) in enumerate(zip(small.ops, large.ops, strict=True)):
        _operation(pair, number, ours, theirs)
    for (_, ours), (name, theirs) in zip(small.outputs, large.outputs, strict=True):
        if ours in pair.lost:
            raise Refused(None, f"output {name!r} is {_LOST}")
        if pair.names[ours] != theirs:
            raise OtherForm(None, f"output {name!r} is another value")
    return pair.needs


def _operation(pair: Pair, number: int, ours: Op, theirs: Op) -> None:
    """Shows the claim for one operation."""
    if type(ours) is not type(theirs):
        raise OtherForm(theirs, "the two sizes lead to programs of different steps")
    if pair.lost.intersection(used_by(ours)):
        raise Refused(theirs, f"it needs {_LOST}")
    if isinstance(ours, Loop) and isinstance(theirs, Loop):
        _loop(pair, ours, theirs)
        return
    for a, b in zip(defined_by(ours), defined_by(theirs), strict=True):
        pair.relate(theirs, a, b)
    ours = renamed(ours, pair.names)
    whole = all(pair.inner(n) == pair.large[n].shape for n in (*used_by(theirs), *defined_by(theirs)))
    if whole and ours == theirs:
        return
    rule = _RULES.get(type(theirs))
    if rule is None:
        raise Refused(theirs, "nothing is known about padding it")
    pair.needs |= Needs(literals=frozenset((number, k) for k in _different(ours, theirs)))
    rule(pair, number, without_literals(ours), without_literals(theirs))


_LOST = "what the last round of a loop over the padded axis carries"


def _loop(pair: Pair, ours: Loop, theirs: Loop) -> None:
    """Rounds are the same, as far as the smaller program has them: its rows are the first ones, if none begin at the end."""
    forms = [(len(op.carries), len(op.slices), op.reverse) for op in (ours, theirs)]
    if forms[0] != forms[1] or tuple(pair.names[n] for n in used_by(ours)) != used_by(theirs):
        raise OtherForm(theirs, "it has another form for the two sizes")
    if ours.count != theirs.count and ours.reverse:
        raise Refused(theirs, "it begins at the end of the padded axis")
    if compared(ours.body, theirs.body):
        raise Refused(theirs, "what a round sums up runs over the padded axis")
    carried = len(ours.carries) if ours.count != theirs.count else 0
    pair.lost.update(ours.results[:carried])
    for a, b in zip(ours.results[carried:], theirs.results[carried:], strict=True):
        pair.relate(theirs, a, b)


def _different(ours: Op, theirs: Op) -> list[int]:
    """Places of the literals that are different numbers."""
    pairs = zip(literals(ours), literals(theirs), strict=False)
    return [k for k, (a, b) in enumerate(pairs) if a != b and a.dtype is b.dtype]


_RULES: dict[type[Op], Callable[[Pair, int, Any, Any], None]] = {
    ConstantTensor: constant,
    Elementwise: elementwise,
    IndexOf: index_of,
    Reshape: reshape,
    Contraction: contraction,
    Gather: gather,
    Scatter: scatter,
    Argsort: argsort,
}
