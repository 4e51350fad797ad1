"""Whatever a text says, it is a program or a TileError: mutated sources, five thousand here, a million in the night.

A failure names its mutant; `show(seed, number)` prints it.
"""

import random
import traceback
from itertools import islice

import pytest
import tile_lang
from tile_ir.diagnostics import TileError
from tile_lang.mutations import MUTATIONS, Mutant, mutants

SEED = 20_000
CHUNKS = 4


def show(seed: int, number: int) -> None:
    """Print one mutant's text and types, to be run again by itself."""
    mutant = next(mutants(seed, number))
    print(mutant.text, dict(mutant.types), sep="\n")


def stages(mutant: Mutant) -> str:
    """The last stage that a mutant reaches; what is printed on the way must parse back to the same."""
    try:
        function = tile_lang.parse(mutant.text)
        assert tile_lang.parse(tile_lang.print_function(function)) == function
        assert tile_lang.parse(tile_lang.format_source(mutant.text)) == function
        program = tile_lang.bind(
            function, {i.name.id: t for i in function.inputs if (t := mutant.types.get(i.name.id))}
        )
    except TileError as error:
        assert str(error) and error.diagnostics
        return "refused"
    assert tile_lang.parse_program(tile_lang.print_program(program)) == program
    return "bound"


def farm(seed: int, count: int) -> dict[str, int]:
    """How many of the first `count` mutants are refused, and how many bind."""
    found = {"refused": 0, "bound": 0}
    for mutant in islice(mutants(seed), count):
        try:
            found[stages(mutant)] += 1
        except Exception:
            pytest.fail(f"show({seed}, {mutant.number}):\n{mutant.text}\n{traceback.format_exc()}")
    return found


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_a_mutated_source_is_a_program_or_an_error_of_ours(chunk: int) -> None:
    found = farm(SEED + chunk, 5_000 // CHUNKS)
    print(f"seed {SEED + chunk}: {found}")
    assert found["bound"] > 100 and found["refused"] > 100, "the mutations have become too mild or too wild"


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(20))
def test_a_million_mutated_sources(chunk: int) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}: {farm(seed, 50_000)}")


def test_a_mutated_program_text_is_a_program_or_an_error_of_ours() -> None:
    texts = [text for mutant in islice(mutants(SEED), 300) for text in _program_text(mutant)]
    draw = random.Random(SEED)
    for _ in range(2_000):
        text = draw.choice(MUTATIONS)(draw, draw.choice(texts))
        try:
            tile_lang.print_program(tile_lang.parse_program(text))
        except TileError as error:
            assert str(error)


def _program_text(mutant: Mutant) -> list[str]:
    try:
        return [tile_lang.print_program(tile_lang.bind(tile_lang.parse(mutant.text), mutant.types))]
    except TileError:
        return []
