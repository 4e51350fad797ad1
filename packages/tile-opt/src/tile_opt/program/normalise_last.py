"""Sums weighted by exponentials below a row's largest element, divided when they are complete.

``O[s, d] = sum over t of exp(x[s, t] - m[s]) / z[s] * v[t, d]`` waits for all of z before its first product. What does not
move with the sum may stand in front of it: ``O = (sum over t of exp(x - m) * v) / z``. Then all sums of a row take the same
weights, in the same order, and a kernel may carry them from one piece of the row to the next (`kernel.rows_in_steps`).
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.names import claim
from tile_ir.program.nodes import Contraction, Op, TensorType
from tile_ir.stripe.affine import Affine

from tile_opt.program.base import fixed_values
from tile_opt.program.cascade import Groups, Made, OverRows, Weighted, product_of, quotient, rows_of
from tile_opt.program.pairs import Pairs
from tile_opt.program.trees import Leaf, as_dtype, computed, leaves, unwidened


@frozen
class NormaliseLast(OverRows):
    """Divide after the sum, where rows have more than `kept` elements, which a product computes; 0 leaves all as it is.

    Weights of a wider float than what they are multiplied with are rounded to that where factors may be `short`.
    """

    short: bool = False

    def made(self, groups: Groups) -> Made:
        still = frozenset(fixed_values(groups.program))
        made = (_replaced(members, groups.pairs, still, short=self.short) for members in groups.found())
        return {n: ops for each in made for n, ops in each.items()}


def _replaced(
    members: tuple[Weighted, ...], pairs: Pairs, still: Set[str], *, short: bool
) -> dict[str, tuple[Op, ...]]:
    """By the name of each sum, what takes its place; the weights of all stand in front of the first.

    Where scores have a mask that is `still` in all runs, the largest element is one of the very expressions that the weights are made
    of: one would read the mask, which is computed before, and the other what that is made of.
    """
    taken, pair = pairs.taken, members[0].pair
    # What a sum rounds to a shorter float, all may take so.
    shortest = min(members, key=lambda m: m.weight.dtype.bytes)
    weights = _weights(shortest, claim(f"{pair.first.name}_weights", taken))
    made = {m.pair.op.name: _sums(m, weights, taken, short=short) for m in members}
    made |= {pair.op.name: (weights, *made[pair.op.name])}
    scores = as_dtype(pairs.trees.summand(pair.first, pair.first_domain), pair.first.acc)
    if not any(leaf.tensor in still for leaf in leaves(scores)):
        return made
    first, domain = pair.first, pair.first_domain
    return made | {first.name: (computed(domain.extents, first.name, first.type, domain.output, scores, first),)}


def _weights(member: Weighted, name: str) -> Contraction:
    """The exponential of every element, by its row and its place in it."""
    names = [*rows_of(member), member.index]
    type = TensorType(member.weight.dtype, tuple(member.pair.domain.extents[n] for n in names))
    output = tuple(map(Affine.var, names))
    return computed(member.pair.domain.extents, name, type, output, member.weight, origin=member.pair.op.origin)


def _sums(member: Weighted, weights: Contraction, taken: set[str], *, short: bool) -> tuple[Op, ...]:
    """The sum, under its own name where nothing stands in front of it."""
    op = member.pair.op
    at = tuple(map(Affine.var, [*rows_of(member), member.index]))
    front, weight = _factor(member, Leaf(weights.name, at, weights.type.dtype), taken, short=short)
    summand = product_of([as_dtype(f, op.acc) for f in (weight, *member.values)])
    domain = member.pair.domain
    plain = computed(domain.extents, op.name, op.type, domain.output, summand, op)
    if not (member.outside or member.divisors):
        return (*front, plain)
    plain = replace(plain, name=claim(f"{op.name}_sum", taken), type=replace(op.type, dtype=op.acc))
    return *front, plain, _finished(member, plain)


def _factor(member: Weighted, weight: Leaf, taken: set[str], *, short: bool) -> tuple[tuple[Contraction, ...], Leaf]:
    """The weight of an element times what else belongs to it, as what it is multiplied with takes it; what makes that in front."""
    dtype = _shorter(member, weight.dtype) if short else weight.dtype
    if not member.scores and dtype is weight.dtype:
        return (), weight
    name, extents = claim(f"{member.pair.op.name}_weights", taken), member.pair.domain.extents
    value = product_of([weight, *(as_dtype(unwidened(f), weight.dtype) for f in member.scores)])
    type = TensorType(dtype, tuple(extents[n] for f in weight.forms for n in f.names))
    made = computed(extents, name, type, weight.forms, as_dtype(value, dtype), origin=member.pair.op.origin)
    return (made,), Leaf(name, weight.forms, dtype)


def _shorter(member: Weighted, dtype: DType) -> DType:
    """That of a tensor of values with 16 bits, if weights are in its range: products with other numbers may leave that of float16."""
    match tuple(map(unwidened, member.values)):
        case (Leaf(dtype=DType.BFLOAT16 | DType.FLOAT16 as found),) if found.bytes < dtype.bytes:
            return dtype if member.scores and found is DType.FLOAT16 else found
        case _:
            return dtype


def _finished(member: Weighted, sums: Contraction) -> Contraction:
    """The complete sums times what does not move with them."""
    op, domain = member.pair.op, member.pair.domain
    term = quotient((Leaf(sums.name, domain.output, op.acc), *member.outside), member.divisors, op.acc)
    return computed(domain.extents, op.name, op.type, domain.output, term, origin=op.origin)
