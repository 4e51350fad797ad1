"""Plans print, parse back, and say where a text is wrong."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tile_ir.diagnostics import Source, TileSyntaxError
from tile_ir.stripe.nodes import Bind, Scope, Swizzle
from tile_opt.plan.plan import Across, Cover, Edge, Instruction, Level, Plan, Reduction, Staging
from tile_opt.plan.text import WORDS, Entry, Plans, parse_plans, print_plans

NAMES = st.sampled_from([*sorted(WORDS), "m", "n_1", "C'", "x16", "x", "a.b", "", "é", "two words", 'q"\\']) | st.text()
COUNTS = st.integers(-3, 1 << 40)
LEVELS = st.builds(
    Level,
    st.sampled_from(Bind),
    st.lists(st.builds(Cover, NAMES, COUNTS, COUNTS), max_size=3).map(tuple),
    COUNTS,
    st.booleans(),
)
STAGINGS = st.builds(
    Staging,
    NAMES,
    st.integers(-3, 6),
    NAMES,
    st.lists(NAMES, max_size=3).map(tuple),
    st.sampled_from(Scope),
    COUNTS,
    st.none() | st.builds(Swizzle, COUNTS, COUNTS, COUNTS),
    COUNTS,
    NAMES,
)


def lists(items: st.SearchStrategy[Any], most: int = 4) -> st.SearchStrategy[Any]:
    return st.lists(items, max_size=most).map(tuple)


PLANS = st.builds(
    Plan,
    lists(LEVELS),
    lists(STAGINGS),
    lists(st.builds(Reduction, NAMES, st.sampled_from(Across), COUNTS)),
    lists(st.tuples(NAMES, st.sampled_from(Edge))),
    st.none() | st.builds(Instruction, NAMES, lists(st.tuples(NAMES, NAMES))),
    st.text(),
)

MATMUL = """plan C {
  stage W in DRAM as [k, n] to bfloat16
  grid m:48 n:1024
  serial n:64
    stage B in L2 as [k, n] by group pad 8 swizzle bits=3 base=2 shift=3 versions 2
  ordered serial m:6
  group n:16/4
  unroll m:1
  vector n:1 x16
  reduce k across lanes x16
  reduce j across serial
  edge n overlap
  instruction mma.16 m=m n=n
  because "one panel of B stays in L2"
}
"""


def test_the_words_are_those_of_the_grammar() -> None:
    grammar = files("tile_opt.plan").joinpath("plan.lark").read_text("utf-8")
    assert set(re.findall(r"^[A-Z]+\.2: /([a-z]+)\(", grammar, re.M)) - {"x"} == WORDS


@given(st.dictionaries(NAMES, PLANS, max_size=3))
def test_printing_and_parsing_are_inverse(plans: dict[str, Plan]) -> None:
    text = print_plans(plans)
    assert parse_plans(text) == plans
    assert print_plans(parse_plans(text)) == text


def test_the_text_of_a_plan() -> None:
    plans = parse_plans(MATMUL)
    assert print_plans(plans) == MATMUL
    plan = plans["C"]
    assert [s.level for s in plan.stagings] == [-1, 1]
    assert plan.levels[3].covers == (Cover("n", 16, 4),)
    assert plan.reductions[1] == Reduction("j", Across.SERIAL)


def test_a_staging_belongs_to_the_level_above_it() -> None:
    """Unless its number says otherwise; stagings out of order, or of no level, keep their numbers."""
    stagings = (Staging("A", 1, "LOCAL"), Staging("B", 0, "L1"), Staging("D", 7, "L1"))
    plan = Plan((Level(Bind.GRID, ()), Level(Bind.NONE, ())), stagings)
    text = print_plans({"C": plan})
    assert text.splitlines()[3:6] == ["    stage A in LOCAL", "    stage B in L1 at 0", "    stage D in L1 at 7"]
    assert parse_plans(text)["C"] == plan
    moved = text.replace("  serial\n", "  serial\n  core\n")
    assert [s.level for s in parse_plans(moved)["C"].stagings] == [2, 0, 7]


def test_comments_and_spaces_mean_nothing() -> None:
    loose = "\ufeff// mine\r\n" + MATMUL.replace("\n", "   // why\r\n\r\n\t").rstrip()
    assert parse_plans(loose) == parse_plans(MATMUL)
    assert parse_plans("") == parse_plans("// nothing") == {}
    assert parse_plans("plan C {}") == {"C": Plan(())}


def test_remarks_stand_above_a_plan() -> None:
    plans = Plans(parse_plans("plan C {}"), remarks={"C": ["C = A\n + B;", "loops i: 8"]})
    assert str(plans) == "// C = A + B;\n// loops i: 8\nplan C {\n}\n"
    assert parse_plans(str(plans)) == plans


def test_every_entry_has_a_place() -> None:
    places = parse_plans(Source(MATMUL, "my.plan")).places
    assert places[Entry("C")].text == "C"
    assert places[Entry("C", "level", 2)].text == "ordered serial m:6"
    assert places[Entry("C", "stage", 1)].text.startswith("stage B in L2")
    assert places[Entry("C", "reduce", 1)].text == "reduce j across serial"
    assert str(places[Entry("C", "edge")]) == "my.plan:12:3"
    assert places[Entry("C", "instruction")].text == "instruction mma.16 m=m n=n"


MISTAKES = {
    "plan C {\n  sereal n:4\n}": ("2:3", "'sereal' cannot stand here", "did you mean 'serial'?"),
    "plan C {\n  stage B ni L2\n}": ("2:11", "'ni' cannot stand here", "did you mean 'in'?"),
    "plan C {\n  reduce k across lane\n}": ("2:19", "'lane' cannot stand here", "did you mean 'lanes'?"),
    "plan C {\n  grid n=4\n}": ("2:9", "'=' cannot stand here", "expected ':'"),
    "plan C {\n  grid n:4 }": ("2:12", "'}' cannot stand here", "expected a name, '/', a string in quotes, "),
    "plan C {\n  grid n: // x\n}": ("2:11", "the line cannot end here", "expected a number"),
    "plan C {\n  grid n:4": ("2:11", "the text ends in the middle of a plan", "expected because, core, "),
    "plan C {\n  § n:4\n}": ("2:3", "'§' cannot stand here", "expected because, core, "),
    "plan C {\n  stage B as [k]\n}": ("2:3", "the staging of 'B' names no memory unit", "such as: stage B in LOCAL"),
    "plan C {\n  stage B in L1 in L2\n}": ("2:17", "the staging of 'B' says 'in' twice", ""),
    'plan C {\n  because "a"\n  because "b"\n}': ("3:3", "the plan of 'C' says 'because' twice", ""),
    "plan C {}\nplan C {}": ("2:6", "there are two plans for the kernel 'C'", ""),
    f"plan C {{\n  grid n:{'9' * 5000}\n}}": ("2:10", "the number has too many digits", ""),
    'plan "C\\q" {}': ("1:6", "the string has an unknown escape", ""),
}


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_is_shown_where_it_is(text: str) -> None:
    place, message, hint = MISTAKES[text]
    with pytest.raises(TileSyntaxError) as caught:
        parse_plans(Source(text, "my.plan"))
    (found,) = caught.value.diagnostics
    assert found.render().startswith(f"my.plan:{place}: error {found.code}: {message}")
    assert found.code in ("TILE-E621", "TILE-E622")
    assert (found.hint or "").startswith(hint)
    assert "^" in found.render()


@given(st.text(st.sampled_from(list('plan C{}\n:/x16"grid stage=[],-')), max_size=40))
def test_no_text_makes_a_traceback(text: str) -> None:
    try:
        parse_plans(text)
    except TileSyntaxError as error:
        assert error.diagnostics
