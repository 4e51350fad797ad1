"""Estimates: they add up, grow with the work, keep the machine's limits, and exist for every kind of kernel."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from math import inf, prod
from operator import getitem
from typing import Any

import pytest
from explain_support import COPY, GPU, MATMUL, SOFTMAX, compiled
from hypothesis import given, settings
from model_support import kernel, kernels, processor
from program_samples import programs
from tile_ir.diagnostics import TileError
from tile_ir.document import from_document, to_document
from tile_ir.dtype import DType
from tile_ir.machine import (
    Bandwidths,
    Cache,
    Functions,
    InstructionRate,
    Launch,
    LocalMemory,
    Machine,
    Memory,
    Occupancy,
    Ports,
    VectorUnit,
)
from tile_ir.program.nodes import Program
from tile_ir.stripe.nodes import Block
from tile_ir.target import Target
from tile_opt.kernel.view import close_kernel
from tile_opt.model.arithmetic import straight_line
from tile_opt.model.estimate import Estimate, estimate, least_seconds
from tile_opt.model.operations import instructions
from tile_opt.model.scheduled import read
from tile_opt.model.search import choose
from tile_opt.plan.text import parse_plans

_FAST = Bandwidths(3000, 3000, 3000)
GRAPHICS = Machine(
    clock_ghz=2.0, cores=100, vector=VectorUnit(255, 16, 4),
    ports=Ports(fma=4, add=4, vector=4, load=1, store=1, shuffle=1, issue=4),
    caches=(Cache(1, 128 << 10, line=128, sector=32, latency=35, bandwidth=64),
            Cache(2, 32 << 20, 16, 128, 32, 270, 24, shared=100)),
    memory=Memory(550, Bandwidths(60, 60, 60), _FAST), local=LocalMemory(200 << 10), occupancy=Occupancy(),
    launch=Launch(4e-6, 0, 8e-8), functions=Functions(), instructions=(InstructionRate("mma_m16n8k8_tf32", 1),),
)  # fmt: skip
GRAPHICS_TARGET = replace(GPU, machine=GRAPHICS).resolved(cores=100)
TARGETS = {"zen4": processor("zen4"), "xeon": processor("xeon", 2), "graphics": GRAPHICS_TARGET}
ROWS = (
    "function (A[M, K], B[K, N]) -> (S) { O[i, j : M, N] = +(A[i, k] * B[k, j]); T = exp(O); S[i : M] = +(T[i, j]); }"
)
CHAIN = "function (A, B) -> (R) { R = exp(A * B + 1) / A; }"


def total(source: str, target: Target, **shapes: tuple[int, ...]) -> float:
    return sum(estimate(k, target).seconds for k in kernels(source, target, **shapes))


def sound(found: Estimate) -> None:
    assert found.seconds > 0 and found.bound == found.causes[0].name
    assert sum(c.seconds for c in found.causes) == pytest.approx(found.seconds)
    assert all(c.seconds > 0 for c in found.causes)
    assert [c.seconds for c in found.causes] == sorted((c.seconds for c in found.causes), reverse=True)
    assert len({c.name for c in found.causes}) == len(found.causes)
    assert all(n >= 0 for _, n in found.traffic)


def compiled_kernels(program: Program, target: Target) -> list[Block]:
    import tile_opt

    (main,) = (s for s in tile_opt.compile(program, target).stripe.entry.body if isinstance(s, Block))
    return [s for s in main.body if isinstance(s, Block)]


@pytest.mark.parametrize("name", TARGETS)
def test_every_kernel_of_random_programs_has_an_estimate(name: str) -> None:
    @settings(max_examples=40, deadline=None)
    @given(programs())
    def check(program: Program) -> None:
        for block in compiled_kernels(program, TARGETS[name]):
            sound(estimate(block, TARGETS[name]))

    check()


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize(
    ("source", "small", "large"),
    [
        (MATMUL, {"A": (64, 64), "B": (64, 64)}, {"A": (512, 256), "B": (256, 512)}),
        (SOFTMAX, {"A": (64, 200)}, {"A": (2000, 400)}),
        (COPY, {"A": (64, 128)}, {"A": (1024, 2048)}),
        (CHAIN, {"A": (64, 128), "B": (64, 128)}, {"A": (1024, 2048), "B": (1024, 2048)}),
    ],
)
def test_more_work_takes_longer(name: str, source: str, small: dict[str, Any], large: dict[str, Any]) -> None:
    assert total(source, TARGETS[name], **large) > total(source, TARGETS[name], **small)


@pytest.mark.parametrize("name", TARGETS)
def test_no_estimate_beats_the_machine(name: str) -> None:
    target = TARGETS[name]
    machine, n = target.machine, 384
    found = total(MATMUL, target, A=(n, n), B=(n, n))
    lanes = (
        (machine.vector.native or machine.vector.bytes) // 4 * (machine.occupancy.subgroup if machine.occupancy else 1)
    )
    peak = machine.cores * machine.ports.fma * lanes * machine.clock_ghz * 1e9
    assert found > n**3 / peak
    rows = 1 << 14
    moved = 2 * 4 * rows * 2048
    best = machine.memory.all_cores
    seconds = total(CHAIN, target, A=(rows, 2048), B=(rows, 2048))
    assert seconds > moved / (max(best.read, best.non_temporal) * 1e9)


def test_polynomials_fetch_their_constants_where_registers_are_few() -> None:
    target = processor("zen4")
    (exponentials,) = kernels("function (A) -> (C) { C = exp(A); }", target, A=(4096,))
    many = slower(target.machine, issue=2)
    few = replace(many, vector=replace(many.vector, registers=16))
    times = [estimate(exponentials, replace(target, machine=m)).seconds for m in (few, many)]
    assert times[0] > 1.1 * times[1]


def test_short_rows_are_whole_vectors_also_where_groups_are_not_even() -> None:
    """Conditions on the loop over groups leave the rows of each iteration side by side."""
    target, rows = processor("zen4", cores=2), 274_828
    source = "function (A[N, C], H[C]) -> (E) { E = exp(A - H); }"
    short = total(source, target, A=(rows, 2), H=(2,))
    assert short < 1.5 * total(source, target, A=(rows // 32, 64), H=(64,))


def slower(machine: Machine, **ports: float) -> Machine:
    return replace(machine, ports=replace(machine.ports, **ports))


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("source", [MATMUL, SOFTMAX, COPY])
def test_a_worse_machine_is_never_faster(name: str, source: str) -> None:
    target = TARGETS[name]
    shapes = {"A": (300, 256), "B": (256, 200)} if source == MATMUL else {"A": (300, 256)}
    blocks = list(kernels(source, target, **shapes))
    ports = target.machine.ports
    last = target.machine.caches[-1]
    worse = {
        "multiply": slower(target.machine, fma=ports.fma / 2),
        "load": slower(target.machine, load=ports.load / 2),
        "issue": slower(target.machine, issue=ports.issue / 2),
        "chain": slower(target.machine, fma_latency=2 * ports.fma_latency, add_latency=2 * ports.add_latency),
        "clock": replace(target.machine, clock_ghz=target.machine.clock_ghz / 2),
        "caches": replace(
            target.machine,
            caches=tuple(replace(c, bytes=c.bytes // 4, bandwidth=c.bandwidth / 2) for c in target.machine.caches),
        ),
        "last": replace(target.machine, caches=(*target.machine.caches[:-1], replace(last, bytes=last.bytes // 1024))),
        "start": replace(target.machine, launch=replace(target.machine.launch, kernel=1.0)),
    }
    for block in blocks:
        first = estimate(block, target).seconds
        for what, machine in worse.items():
            # Waiting that becomes work of a port may overlap with other work: a little less remains of both.
            assert estimate(block, replace(target, machine=machine)).seconds >= first * 0.99, what


def test_strided_lanes_cost_more_than_neighbours() -> None:
    rows = "function (X[N, M]) -> (R) { R[i, j : N, M] = =(X[i, j]); }"
    for name in ("zen4", "graphics"):
        plan = parse_plans("plan kernel_0 {\n serial i:1\n serial j:16\n vector j:1 x16\n}") if name == "zen4" else None
        turned = "function (X[N, M]) -> (R) { R[i, j : M, N] = =(X[j, i]); }"
        apart = kernel(turned, TARGETS[name], plan, X=(1024, 1024))
        assert estimate(apart, TARGETS[name]).seconds > total(rows, TARGETS[name], X=(1024, 1024)) * 1.05


WINDOWS = """
plan kernel_0 {{
  serial c:1
  serial x:16
  serial y:8
  {inner}
  vector x:1 x16
}}
"""


def test_windows_that_overlap_load_what_they_share_once() -> None:
    """Eight rows of windows of seven are 14 rows of the operand for 56 products, not 56."""
    source = "function (D[C, H, W], K[C, I, J]) -> (R) { R[c, y, x : C, 64, 64] = +(D[c, y + i, x + j] * K[c, i, j]); }"
    shapes = {"D": (64, 70, 70), "K": (64, 7, 7)}
    target = TARGETS["zen4"]
    looped, straight = (
        estimate(kernel(source, target, parse_plans(WINDOWS.format(inner=inner)), **shapes), target)
        for inner in ("serial j:1 i:1\n  unroll y:1", "serial j:1\n  unroll i:1 y:1")
    )
    assert looped.bound == "load"
    assert straight.seconds < looped.seconds / 1.3


def test_neighbours_a_few_elements_apart_are_spread_by_shuffles() -> None:
    """Two vectors and a shuffle or two hold what sixteen loads fetch one by one where elements lie further apart."""
    target = TARGETS["xeon"]
    plan = parse_plans("plan kernel_0 {\n serial i:16\n vector i:1 x16\n}")
    near, far = (
        estimate(kernel(f"function (X[N]) -> (R) {{ R[i : 512] = =(X[{step}*i]); }}", target, plan, X=(4096,)), target)
        for step in (2, 8)
    )
    launch = target.machine.launch.kernel + target.machine.launch.group
    assert 0 < near.seconds - launch < (far.seconds - launch) / 3


def test_neighbours_in_between_are_made_of_the_same_loads() -> None:
    """Of pairs that one pass takes, the firsts and the seconds lie in the same two vectors; one by one both fetch them."""
    target = TARGETS["zen4"]
    together, apart = (
        loading(target, f"plan kernel_0 {{\n serial k:{k} i:16\n {inner}\n vector i:1 x16\n}}")
        for k, inner in ((2, "unroll k:1"), (1, ""))
    )
    assert 0 < together <= 0.55 * apart


def loading(target: Target, plan: str) -> float:
    """Slots of all loads of a kernel that separates pairs, by a plan."""
    source = "function (X[N, M]) -> (R) { R[k, i : M, N] = =(X[i, k]); }"
    trees = read(kernel(source, target, parse_plans(plan), X=(4096, 2))).walk()
    return sum(straight_line(tree, target.machine).load * tree.passes for tree in trees if tree.accesses)


MASKED = """plan kernel_0 {
  serial j:16
    stage B in L2 as [k, j]
  serial i:8
  serial k:1
  unroll i:1
  vector j:1 x16
  edge j mask
}"""


def test_a_mask_saves_no_instructions() -> None:
    """Eleven of sixteen lanes take as long as all: an instruction computes whole vectors."""
    target = TARGETS["xeon"]
    masked, whole = (
        estimate(kernel(MATMUL, target, parse_plans(MASKED), A=(64, 256), B=(256, columns)), target)
        for columns in (11, 16)
    )
    assert masked.seconds == pytest.approx(whole.seconds, rel=0.1)


def test_a_single_accumulator_waits_for_itself() -> None:
    target = TARGETS["zen4"]
    long = kernel("function (X[N]) -> (R) { R[] = *(X[i]); }", replace(target, passes=()), X=(4096,))
    found = estimate(long, target)
    assert found.bound == "latency"
    assert found.seconds > 4096 * target.machine.ports.fma_latency / (target.machine.clock_ghz * 1e9)


def test_lines_that_come_and_go_take_turns_where_the_machine_says_so() -> None:
    sums, target = "function (A, B) -> (C) { C = A + B; }", TARGETS["zen4"]
    near, second, far = target.machine.caches
    turns = replace(target.machine, caches=(near, replace(second, duplex=2), far))
    apart, together = (
        total(sums, replace(target, machine=m), A=(50_000,), B=(50_000,)) for m in (target.machine, turns)
    )
    assert 1.2 * apart < together < 1.5 * apart  # of four lines three come


def test_rows_that_begin_within_lines_do_not_pass_the_caches_by() -> None:
    """A vector that straddles two lines leaves both of them in parts: on two processors that took three times as long."""
    biased = "function (A[N, M], B[M]) -> (C) { C = A + B; }"
    for columns, passes in ((4096, True), (4096 + 8, False)):
        (made,) = kernels(biased, TARGETS["zen4"], A=(4096, columns), B=(columns,))
        found = [leaf.passing(a) is not None for leaf in read(made).walk() for a in leaf.accesses.values() if a.writes]
        assert any(found) == passes


@pytest.mark.parametrize(("name", "width"), [("xeon", 4), ("zen4", 2)])
def test_rows_that_are_found_by_number_cost_their_addresses(name: str, width: int) -> None:
    source, target = "function (T[N, W], I[K]) -> (O) { O = gather(T, as_int(I, 32)); }", TARGETS[name]
    target = replace(target, machine=slower(replace(target.machine, launch=Launch(0, 0, 0)), issue=1))
    seconds = sum(estimate(k, target).seconds for k in kernels(source, target, T=(64, width), I=(2000,)))
    machine = target.machine
    assert seconds > 2000 * 8 / (machine.clock_ghz * 1e9) / machine.cores


def test_what_the_device_does_on_the_caller_is_estimated_on_one_core() -> None:
    """Up to 20 µs, by a rough count, no groups are handed out, although two cores would take half as long."""
    for elements, cores in ((20_000, 1), (60_000, 2)):
        (made,) = kernels("function (A) -> (C) { C = exp(A); }", TARGETS["xeon"], A=(elements,))
        assert prod(i.range for i in made.indexes) > 1
        handed = any(cause.name == "hand-off" for cause in estimate(made, TARGETS["xeon"]).causes)
        assert handed == (cores > 1)


def test_accesses_that_touch_two_lines_cost_what_the_machine_says() -> None:
    source, target = "function (A[N]) -> (R) { R[i : N - 8] = +(A[i + k]), k < 8; }", TARGETS["zen4"]
    free = replace(target.machine, launch=Launch(0, 0, 0))
    dear = replace(free, ports=replace(free.ports, split=3))
    cheap, slow = (total(source, replace(target, machine=m), A=(4000,)) for m in (free, dear))
    assert 1.2 * cheap < slow < 3 * cheap


def test_an_array_too_large_for_registers_costs_what_is_touched_of_it() -> None:
    source = "function (A[M, N]) -> (R) { X[0, j : 1, N] = >(A[i, j]); E = exp(A - X); S[0, j : 1, N] = +(E[i, j]); R = log(S); }"
    found = estimate(kernel(source, TARGETS["xeon"], A=(24, 60_000)), TARGETS["xeon"])
    assert found.bound != "store"


def test_sums_that_straight_line_code_adds_up_need_no_registers_of_their_own() -> None:
    """Of the parts of a stencil each is there for a moment."""
    taps = ("x - 1, y", "x + 1, y", "x, y - 1", "x, y + 1", "x - 1, y - 1", "x + 1, y + 1")
    parts = " ".join(f"S{n}[x, y : X, Y] = +(A[{tap}]);" for n, tap in enumerate(taps))
    stencil = kernel(
        f"function (A[X, Y]) -> (O) {{ {parts} O = S0 + S1 + S2 + S3 + S4 + S5; }}", TARGETS["zen4"], A=(256, 256)
    )
    many = TARGETS["zen4"].machine
    few = replace(many, vector=replace(many.vector, registers=8))
    times = [estimate(stencil, replace(TARGETS["zen4"], machine=m)).seconds for m in (many, few)]
    assert times[0] == times[1]


def test_the_larger_of_a_value_and_a_constant_takes_one_instruction() -> None:
    source = "function (A, B) -> (R) {{ R = max(max(max(max(A, {0}), {0}), {0}), {0}) + B; }}"
    target = TARGETS["xeon"]
    target = replace(target, machine=replace(target.machine, launch=Launch(0, 0, 0)))
    constant, values = (total(source.format(other), target, A=(1000,), B=(1000,)) for other in ("3.0", "B"))
    assert constant < 0.6 * values


def test_doubles_take_what_the_machine_says_of_each_kind_of_function() -> None:
    """A backend's own sine of float64 is not as dear as the C library's powers."""
    machine = replace(Machine(), functions=Functions(long=2, double=10))
    for name, times in (("exp", 2), ("expm1", 2), ("log", 2), ("sin", 2), ("erf", 2), ("pow", 10), ("fmod", 10)):
        assert instructions(name, DType.FLOAT64, machine)[1] == times * instructions(name, DType.FLOAT32, machine)[1]


def test_a_maximum_waits_as_long_as_the_machine_says() -> None:
    target = TARGETS["zen4"]
    slow = replace(target.machine, ports=replace(target.machine.ports, minmax_latency=12))
    (block,) = kernels("function (X[N]) -> (R) { R[] = >(X[i]); }", replace(target, passes=()), X=(4096,))
    found = [estimate(block, replace(target, machine=m)).seconds for m in (target.machine, slow)]
    assert found[1] - found[0] == pytest.approx(4096 * (12 - 4.5) / (slow.clock_ghz * 1e9), rel=0.1)


def test_another_candidate_is_chosen_where_it_is_clearly_faster() -> None:
    target = TARGETS["zen4"]
    slow, fast = (kernel(MATMUL, t, A=(200, 200), B=(200, 200)) for t in (replace(target, passes=()), target))
    assert choose(target, slow, [slow, fast], lambda block: block) is fast
    assert choose(target, fast, [slow], lambda block: block) is fast
    again = replace(fast, name="again")
    assert choose(target, fast, [again], lambda block: block) is fast  # no faster: the space's order holds
    assert choose(target, slow, [], lambda block: block) is slow


@pytest.mark.parametrize(("slower", "taken"), [(1.0, True), (1.02, True), (1.04, False), (inf, False)])
def test_a_candidate_is_chosen_that_is_estimated_faster_by_more_than_its_space_takes_it_for_slower(
    slower: float, taken: bool
) -> None:
    target = TARGETS["zen4"]
    first, other = (kernel(MATMUL, target, A=(200, k), B=(k, 200)) for k in (200, 194))
    assert 1.02 < estimate(first, target).seconds / estimate(other, target).seconds < 1.04
    best = choose(target, first, [other], lambda block: block, slower=lambda block: slower if block is other else 1)
    assert best is (other if taken else first)


def test_where_none_can_be_clearly_faster_no_other_candidate_is_made() -> None:
    target = TARGETS["zen4"]
    fast = kernel(MATMUL, target, A=(200, 200), B=(200, 200))

    def never() -> Iterator[Block]:
        pytest.fail("another candidate was made")
        yield fast

    least = estimate(fast, target).seconds / 1.04
    assert choose(target, fast, never(), lambda block: block, enough=least) is fast


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("shapes", [((200, 200), (200, 200)), ((64, 1024), (1024, 96)), ((7, 3000), (3000, 33))])
def test_no_plan_is_estimated_to_take_less_than_the_least(shapes: tuple[tuple[int, int], ...], cores: int) -> None:
    target = processor("zen4", cores)
    made = compiled(MATMUL, target, A=shapes[0], B=shapes[1])
    decision = next(iter(made.decisions.values()))
    plans = (decision.plan, *decision.others(target))
    built = [decision.scheduler.build(decision.view, plan, target).kernel for plan in plans]
    least = least_seconds(decision.view.block or close_kernel(decision.view), target.machine)
    assert 0 < least < min(estimate(block, target).seconds for block in built)


def test_of_candidates_that_take_about_as_long_one_that_copies_far_less_in_each_call_is_chosen() -> None:
    target = TARGETS["zen4"]
    slow, fast = (kernel(MATMUL, t, A=(200, 200), B=(200, 200)) for t in (replace(target, passes=()), target))
    again = replace(fast, name="again")

    def chosen(fast_copies: int, again_copies: int, slow_copies: int) -> Block:
        copies = {id(fast): fast_copies, id(again): again_copies, id(slow): slow_copies}
        return choose(target, fast, [again, slow], lambda block: block, lambda block: copies[id(block)])

    assert chosen(100, 40, 0) is again
    assert chosen(100, 60, 0) is fast  # not far less
    assert chosen(100, 100, 0) is fast  # what is slow stays so


def numbers(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where the numbers of a document are."""
    for key, value in document.items() if isinstance(document, dict) else enumerate(document):
        if isinstance(value, dict | list):
            yield from numbers(value, (*path, key))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield (*path, key)


@pytest.mark.diagonal(2)
@pytest.mark.parametrize("part", ["machine", "settings"])
@pytest.mark.parametrize("name", ["zen4", "graphics"])
def test_a_zero_in_a_document_is_refused_by_its_name_or_scheduled_for(name: str, part: str) -> None:
    target = TARGETS[name]
    base: Any = getattr(target, part)
    text, refused = json.dumps(to_document(base)), list[str]()
    for *where, last in numbers(json.loads(text)):
        document = json.loads(text)
        reduce(getitem, where, document)[last] = 0
        try:
            changed = from_document(base, document, part)
        except TileError as error:
            refused.append(str(error))
            assert [key for key in (*where, last) if isinstance(key, str)][-1] in refused[-1]
        else:
            compiled(ROWS, replace(target, **{part: changed}), A=(30, 20), B=(20, 15))
    assert refused
