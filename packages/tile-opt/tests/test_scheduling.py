"""Scheduling passes: whose plan counts, what they leave alone, and what they return beside the program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from tile_ir.diagnostics import Source, TilePlanError
from tile_ir.stripe.nodes import Bind, Block, Direction, Program
from tile_ir.stripe.parser import parse_program
from tile_ir.target import Target
from tile_opt.blocks.tree import kernels_of, main_of
from tile_opt.kernel.view import KernelView, close_kernel
from tile_opt.passes.copies import KEPT
from tile_opt.passes.scheduling import SchedulingPass
from tile_opt.pipeline import schedule
from tile_opt.plan.build import Built
from tile_opt.plan.check import refuse_unused
from tile_opt.plan.names import Names, numbered, renamed
from tile_opt.plan.plan import Cover, Level, Plan, Staging
from tile_opt.plan.text import parse_plans

TARGET = Target("plain")
KERNEL = """
#kernel block [{loop}:8] ( in {source}[0] f32(8:1) out {result}[0] f32(8:1) ) {{
  block [{loop}={loop}] ( in A={source}[{loop}] f32(1:1) out B={result}[{loop}] f32(1:1) ) {{
    $a = load(A) $b = {op}($a) B = store($b) }} }}
"""


def program(*kernels: tuple[str, str, str, str]) -> Program:
    """Elementwise kernels of 8 elements: (name, operation, loop, buffers such as "AB")."""
    blocks = "".join(KERNEL.format(loop=loop, source=b[0], result=b[1], op=op) for _, op, loop, b in kernels)
    used = "".join(sorted({c for *_, b in kernels for c in b}))
    refs = " ".join(f"#user {'in' if c == 'A' else 'out'} {c}[0] f32(8:1)" for c in used)
    inner = " ".join(f"{'in' if c == 'A' else 'inout'} {c}[0] f32(8:1)" for c in used)
    outputs = ", ".join(c for c in used if c != "A")
    text = f"inputs A\noutputs {outputs}\nblock [] ( {refs} ) {{ block [] ( {inner} ) {{ {blocks} }} }}"
    made = parse_program(text)
    named = [replace(k, name=n) for k, (n, *_) in zip(kernels_of(made), kernels, strict=True) if isinstance(k, Block)]
    main = replace(main_of(made), name="main", body=tuple(named))
    return replace(made, entry=replace(made.entry, name="entry", body=(main,)))


@dataclass(frozen=True)
class Toy(SchedulingPass):
    """A grid over the first loop, in pieces of 4; leaves kernels called `skip`, copies operands that a plan stages."""

    skip: str = ""

    def candidates(self, view: KernelView, target: Target) -> Iterator[Plan]:
        if view.name != self.skip:
            yield Plan((Level(Bind.GRID, (Cover(view.loops[0].name, 4),)),), reason="a toy")

    def build(self, view: KernelView, plan: Plan, target: Target) -> Built:
        block = replace(close_kernel(view), tags=frozenset({"kernel", "scheduled"}), comment=str(plan.levels))
        if not plan.stagings:
            return Built(block)
        (use,) = (u for u in view.stages[0].uses if u.buffer == plan.stagings[0].operand)
        source = next(r for r in view.refs if r.into == use.buffer)
        copy = replace(source, dir=Direction.ALLOC, into="copy", source="")
        stage = replace(
            view.stages[0], uses=tuple(replace(u, buffer="copy") if u.writes else u for u in view.stages[0].uses)
        )
        out = replace(source, dir=Direction.OUT, into="copy", source="copy")
        front = close_kernel(replace(view, name=f"{view.name}_copy", refs=(*view.refs, out), stages=(stage,)))
        return Built(block, (front,), (), (copy,))


def plain(size: int) -> Plan:
    return Plan((Level(Bind.GRID, (Cover("i", size),)),))


def test_the_pass_chooses_and_says_what() -> None:
    made = schedule(program(("B", "neg", "i", "AB")), TARGET, passes=[Toy()])
    decision = made.decisions["B"]
    assert decision.plan == Plan((Level(Bind.GRID, (Cover("i", 4),)),), reason="a toy")
    assert decision.view.name == "B" and decision.scheduler == Toy() and not decision.given
    (kernel,) = kernels_of(made.program)
    assert isinstance(kernel, Block) and "scheduled" in kernel.tags


def test_a_given_plan_goes_before_the_choice() -> None:
    both = program(("B", "neg", "i", "AB"), ("C", "neg", "i", "AC"))
    made = schedule(both, TARGET, passes=[Toy()], plans={"C": plain(2)})
    assert made.decisions["B"].plan.levels == plain(4).levels
    assert made.decisions["C"].plan == plain(2) and made.decisions["C"].given


def test_what_a_pass_has_no_plan_for_is_left_to_the_next() -> None:
    made = schedule(program(("B", "neg", "i", "AB")), TARGET, passes=[Toy(skip="B"), Toy()])
    assert made.decisions["B"].scheduler == Toy()


def test_equal_kernels_are_chosen_for_once() -> None:
    asked: list[str] = []

    @dataclass(frozen=True)
    class Counting(Toy):
        def candidates(self, view: KernelView, target: Target) -> Iterator[Plan]:
            asked.append(view.name)
            return super().candidates(view, target)

    alike = program(("B", "neg", "i", "AB"), ("C", "neg", "k", "AC"), ("D", "abs", "i", "AD"))
    made = schedule(alike, TARGET, passes=[Counting()])
    assert asked == ["B", "D"]
    assert made.decisions["C"].plan == Plan((Level(Bind.GRID, (Cover("k", 4),)),), reason="a toy")


def test_kernels_that_a_plan_adds_are_planned_in_turn() -> None:
    staged = replace(plain(2), stagings=(Staging("A", -1, "DRAM"),))
    other = replace(staged, stagings=(Staging("B", -1, "DRAM"),))
    both = program(("B", "neg", "i", "AB"), ("C", "neg", "i", "BC"))
    made = schedule(both, TARGET, passes=[Toy()], plans={"B": staged, "C": other, "C_copy": plain(8)})
    assert [k.name for k in kernels_of(made.program) if isinstance(k, Block)] == ["B_copy", "B", "C_copy", "C"]
    assert made.decisions["C_copy"].plan == plain(8) and not made.decisions["B_copy"].given
    added = {name: d.made for name, d in made.decisions.items()}
    assert added == {"B": ("B", "B_copy"), "B_copy": ("B_copy",), "C": ("C", "C_copy"), "C_copy": ("C_copy",)}
    assert [r.into for r in main_of(made.program).refs][-2:] == ["copy", "copy_1"]
    written = [r.source for k in kernels_of(made.program) if isinstance(k, Block) for r in k.refs if r.into == "copy"]
    assert written == ["copy", "copy_1"]


def test_a_plan_knows_each_of_the_kernels_that_it_adds_by_its_final_name() -> None:
    """Else trials of a plan that copies two operands would leave out what the second copy takes."""

    @dataclass(frozen=True)
    class Twice(Toy):
        def build(self, view: KernelView, plan: Plan, target: Target) -> Built:
            built = super().build(view, plan, target)
            return replace(built, before=built.before * 2)

    staged = replace(plain(2), stagings=(Staging("A", -1, "DRAM"),))
    made = schedule(program(("B", "neg", "i", "AB")), TARGET, passes=[Twice()], plans={"B": staged})
    assert made.decisions["B"].made == ("B", "B_copy", "B_copy_1")
    assert [k.name for k in kernels_of(made.program) if isinstance(k, Block)] == ["B_copy", "B_copy_1", "B"]


def kernels_with_copies_of(source: str, *kernels: tuple[str, str, str, str]) -> list[str]:
    """Which kernels there are, if those that read the buffer copy it before."""
    staged = replace(plain(2), stagings=(Staging(source, -1, "DRAM"),))
    readers = {name: staged for name, _, _, buffers in kernels if buffers[0] == source}
    made = schedule(program(*kernels), TARGET, passes=[Toy()], plans=readers)
    read = {r.source for k in kernels_of(made.program) if isinstance(k, Block) for r in k.refs if r.into == "copy"}
    assert read == {r.into for r in main_of(made.program).refs if r.into.startswith("copy")}
    return [k.name for k in kernels_of(made.program) if isinstance(k, Block)]


def test_a_copy_that_is_there_is_not_made_again() -> None:
    names = kernels_with_copies_of("A", ("B", "neg", "i", "AB"), ("C", "neg", "i", "AC"))
    assert names == ["B_copy", "B", "C"]


def test_a_copy_of_what_was_written_since_is_made_anew() -> None:
    first = (("B", "neg", "i", "AB"), ("C", "neg", "i", "BC"))
    names = kernels_with_copies_of("B", *first, ("E", "abs", "i", "AB"), ("D", "neg", "i", "BD"))
    assert names == ["B", "C_copy", "C", "E", "D_copy", "D"]


def test_copies_are_kept_for_few_kernels() -> None:
    between = [(f"K{n}", "neg", "i", "CD") for n in range(KEPT)]
    names = kernels_with_copies_of("A", ("B", "neg", "i", "AB"), *between, ("E", "neg", "i", "AE"))
    assert names[-2:] == ["E_copy", "E"]


def test_kernels_of_one_name_are_told_apart() -> None:
    made = schedule(
        program(("B", "neg", "i", "AB"), ("B", "abs", "i", "AC")), TARGET, passes=[Toy()], plans={"B_1": plain(2)}
    )
    assert made.decisions["B_1"].given and not made.decisions["B"].given


def test_a_plan_for_no_kernel_is_refused() -> None:
    plans = parse_plans(Source("// mine\nplan Bx {}", "my.plan"))
    with pytest.raises(TilePlanError) as caught:
        refuse_unused(plans, ["B"])
    assert "my.plan:2:6: error TILE-E630: no kernel 'Bx' is planned here" in str(caught.value)
    assert "did you mean 'B'?" in str(caught.value)


def test_a_plan_that_building_trips_over_is_a_sentence() -> None:
    staged = replace(plain(2), stagings=(Staging("B", 0, "DRAM"),))
    with pytest.raises(TilePlanError, match="the plan of 'B' cannot be built"):
        schedule(program(("B", "neg", "i", "AB")), TARGET, passes=[_Broken()], plans={"B": staged})


@dataclass(frozen=True)
class _Broken(Toy):
    def build(self, view: KernelView, plan: Plan, target: Target) -> Built:
        raise AssertionError


def test_a_plan_in_the_names_of_an_equal_kernel() -> None:
    old, new = Names(("i", "k"), ("A", "B")), Names(("x", "i"), ("P", "Q"))
    plan = Plan((Level(Bind.GRID, (Cover("i", 4), Cover("k", 2))),), (Staging("B", 0, "LOCAL", ("k", "i")),))
    moved = renamed(plan, old, new)
    assert moved is not None and moved.levels[0].covers == (Cover("x", 4), Cover("i", 2))
    assert moved.stagings[0] == Staging("Q", 0, "LOCAL", ("i", "x"))
    assert renamed(moved, new, old) == plan
    assert numbered(old) == numbered(new) == Names(("loop0", "loop1"), ("buffer0", "buffer1"))
    assert renamed(plan, Names(("i", "i"), ()), Names(("x", "y"), ())) is None
