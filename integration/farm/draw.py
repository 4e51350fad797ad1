"""Programs from a seed and a number: the same ones on every machine."""

from __future__ import annotations

from random import Random

import tile_lang
from tile_ir.diagnostics import Source, TileError
from tile_ir.dtype import DType
from tile_ir.program.nodes import Program
from tile_lang.mutations import mutants

from farm.draft import SIZES, Draft
from farm.errors import bounds
from farm.sample import Sample
from farm.statements import KINDS

DTYPES = (*(DType.FLOAT32,) * 8, *(DType.FLOAT64,) * 2, *(DType.INT32,) * 2, *DType)
LARGEST = 1 << 14
"""Elements of any value of a mutated source; larger ones are left out."""


def draw(seed: int, number: int) -> Sample | None:
    """Program `number` of `seed`; None for a mutated source that binds no more, or to something large."""
    random = Random(f"farm {seed}/{number}")
    return _mutated(seed, number, random) if random.random() < 0.04 else _drawn(random)


def _drawn(random: Random) -> Sample:
    dtype = random.choice(DTYPES)
    draft = Draft(random, dtype, tuple(random.choice(SIZES) for _ in range(random.choice((2, 3, 3, 4)))))
    kinds = random.choices([*KINDS], weights=[*KINDS.values()], k=random.choice((1, 1, 1, 1, 1, 2, 2, 2, 3, 5)))
    for kind in kinds:
        if len(draft.inputs) < 16:
            kind(draft)
    if not draft.unused:
        transposed = draft.input(draft.shape(2))
        draft.define(f"{{0}} = {transposed} + 1;", dtype, draft.values[transposed].shape)
    outputs = list(draft.unused)
    inner = [n for n in draft.values if n not in draft.inputs and n not in outputs]
    if inner and random.random() < 0.25:
        outputs.append(random.choice(inner))
    random.shuffle(outputs)
    plain = Sample(draft.text(outputs), dict(draft.inputs), random.randrange(1 << 30), kind=kinds[-1].__name__)
    return _varied(plain, random)


def _varied(plain: Sample, random: Random) -> Sample:
    """Sometimes with other data, sometimes its gradient or the gradient of that."""
    floats = [n for n, t in plain.types.items() if t.dtype.is_float]
    order = random.choice((0, 0, 0, 0, 1, 1, 2)) if floats else 0
    wrt = tuple(random.sample(floats, random.randrange(1, len(floats) + 1))) if order else ()
    fractions, special = random.random() < 0.3, random.random() < 0.2
    made = Sample(plain.source, plain.types, plain.data, fractions, special and not order, order, wrt, plain.kind)
    if not made.special or _same_bits(made):
        return made
    return Sample(plain.source, plain.types, plain.data, fractions, False, order, wrt, plain.kind)


def _same_bits(sample: Sample) -> bool:
    """Whether every correct implementation gives the same bits: then strange values may be among the inputs."""
    try:
        return not any(bounds(sample.program, sample.inputs).values())
    except TileError:
        return False


def _mutated(seed: int, number: int, random: Random) -> Sample | None:
    mutant = next(mutants(seed, number))
    try:
        inputs = {i.name.id for i in tile_lang.parse(Source(mutant.text)).inputs}
        types = {n: t for n, t in mutant.types.items() if n in inputs}
        sample = Sample(mutant.text, types, random.randrange(1 << 30), random.random() < 0.3, kind="mutated source")
        return sample if _small(sample.program) else None
    except TileError:
        return None


def _small(program: Program) -> bool:
    return all(t.size <= LARGEST for t in program.types().values())
