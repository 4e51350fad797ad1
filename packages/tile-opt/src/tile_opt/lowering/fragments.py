"""Fragments: which register of a lane an access means, found by evaluating it for every lane of a sub-group."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from itertools import product
from math import prod

from tile_ir.diagnostics import TileInternalError
from tile_ir.frozen import frozen
from tile_ir.matrix import LANES
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Fragment, TensorType

from tile_opt.lowering.forms import Scaled

ALL = list(range(LANES))
KEPT = 1 << 8
"""Accesses whose lanes are kept."""


@frozen
class FragmentMap:
    """The matrices of an allocation: `place[e]` is the (lane, register) of element e of each, in C order."""

    place: tuple[tuple[int, int], ...]
    registers: int

    @property
    def elements(self) -> int:
        return len(self.place)


def fragment_map(type: TensorType) -> FragmentMap:
    """The map of a type with a fragment layout: the dimensions that its forms mention are the last ones."""
    fragment = type.layout.fragment
    assert fragment is not None
    named = [d for d in range(len(type.sizes)) if any(f"d{d}" in f.names for f in (*fragment.lane, *fragment.register))]
    if not type.is_packed or named != list(range(len(type.sizes) - len(named), len(type.sizes))):
        raise TileInternalError(f"a fragment of the sizes {type.sizes} is not packed, or not of its last dimensions")
    return _map(fragment, tuple((f"d{d}", type.sizes[d]) for d in named))


@cache
def _map(fragment: Fragment, dims: tuple[tuple[str, int], ...]) -> FragmentMap:
    names = [name for name, _ in dims]
    points = [dict(zip(names, at, strict=True)) for at in product(*(range(size) for _, size in dims))]
    place = tuple(
        (sum(f.evaluate(at) for f in fragment.lane), sum(f.evaluate(at) for f in fragment.register)) for at in points
    )
    registers = prod(size for _, size in dims) // LANES
    if sorted(place) != [(lane, register) for lane in range(LANES) for register in range(registers)]:
        raise TileInternalError("a fragment does not give each lane as many elements, one per register")
    return FragmentMap(place, registers)


def slot(
    fragments: FragmentMap, affine: Affine, quasi: tuple[Scaled, ...], digits: Mapping[str, tuple[int, int]]
) -> int:
    """The register, numbered over all matrices, that every lane means with the element ``affine + sum(quasi)``.

    `digits` are the variables that tell lanes apart. TileInternalError when a lane would reach for another's element,
    or lanes for different registers.
    """
    elements, registers = fragments.elements, fragments.registers
    meant = [affine.const + moved for moved in _moved(affine.terms, quasi, tuple(digits.items()))]
    held = [fragments.place[at % elements] for at in meant]
    if [owner for owner, _ in held] != ALL:
        lane, owner = next((lane, owner) for lane, (owner, _) in enumerate(held) if owner != lane)
        raise TileInternalError(f"lane {lane} reaches for an element that lane {owner} holds")
    (register,) = {at // elements * registers + own for at, (_, own) in zip(meant, held, strict=True)}
    return register


@lru_cache(KEPT)
def _moved(
    terms: tuple[tuple[str, int], ...], quasi: tuple[Scaled, ...], digits: tuple[tuple[str, tuple[int, int]], ...]
) -> tuple[int, ...]:
    """How far from the constant each lane's element is: the same for the many that one access is unrolled into."""
    lanes = ({name: lane // divisor % modulus for name, (divisor, modulus) in digits} for lane in range(LANES))
    return tuple(
        Affine(terms).evaluate(values) + sum(scale * form.evaluate(values) for scale, form in quasi) for values in lanes
    )
