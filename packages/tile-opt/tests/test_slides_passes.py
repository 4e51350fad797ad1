"""What each of the slides' passes decides, on small programs by hand."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from lowering_support import wrap
from slides_support import SCHEDULE, bound, config, local_allocations, same_results
from tile_ir.diagnostics import TileDeviceError, TilePlanError
from tile_ir.stripe.nodes import Block, Direction, Load, Program, Statement, Store, Transfer
from tile_ir.stripe.parser import parse_program
from tile_ir.target import Target
from tile_opt.blocks.buffers import first_fit
from tile_opt.blocks.tree import kernels_of, main_of
from tile_opt.model.memory_tile import TileRules, TileSearch
from tile_opt.passes.accelerator.compute_deps import dependencies
from tile_opt.passes.accelerator.memory_placement import size_of
from tile_opt.passes.accelerator.tensorize import Stencil, StencilIndex, best_match
from tile_opt.passes.scheduling import Scheduled
from tile_opt.pipeline import optimize
from tile_opt.pipeline import schedule as schedule_passes
from tile_opt.plan.text import parse_plans, print_plans
from tile_opt.translate import to_stripe

CONV = bound(
    "function (I[X, Y, C], K[A, B, C, D]) -> (R) { O[x, y, d : X, Y, D] = +(I[x+a-1, y+b-1, c] * K[a, b, c, d]); R = (O > 0 ? O : 0); }",
    I=(8, 6, 4), K=(3, 3, 4, 8),
)  # fmt: skip


def passed(program: Program | str, *passes: Any) -> Program:
    before = parse_program(program) if isinstance(program, str) else program
    after = optimize(before, Target("t"), passes=passes, verify=True)
    rng = np.random.default_rng(1)
    data = {
        n: rng.integers(-3, 4, before.entry.ref(n).type.sizes).astype(before.entry.ref(n).type.dtype.numpy)
        for n in before.inputs
    }
    same_results(before, after, data)
    return after


def blocks(statements: tuple[Statement, ...]) -> list[Block]:
    return [s for s in statements if isinstance(s, Block)]


def unary(name: str, out: str, source: str, tags: str = "#kernel", size: int = 64) -> str:
    return f"""{tags} block<DSP> [i:{size}] ( in {source}[i] f32(1:1) out {out}[i] f32(1:1) ) // {name}
      {{ $a = load({source}) $b = neg($a) {out} = store($b) }}""".replace(f" // {name}\n     ", "")


def chain(count: int, size: int = 64) -> str:
    """B = -(-(… A)): `count` kernels through temporaries T1, T2, …"""
    names = ["A", *(f"T{k}" for k in range(1, count)), "B"]
    kernels = "\n".join(unary(f"k{k}", names[k + 1], names[k], size=size) for k in range(count))
    temps = dict.fromkeys(names[1:-1], f"f32({size}:1)")
    text = wrap("inputs A\noutputs B", {"in A": f"f32({size}:1)", "out B": f"f32({size}:1)"}, kernels, temps)
    return text.replace("block [] ( // program", "#program block [] ( // program").replace(
        "block [] ( // main", "#main block [] ( // main"
    )


def main_text(kernels: str, *temps: str, inputs: str = "A") -> str:
    """A program of vectors of 64: `inputs` and B, and temporaries."""
    names = inputs.split()
    buffers = {**{f"in {n}": "f32(64:1)" for n in names}, "out B": "f32(64:1)"}
    text = wrap(f"inputs {', '.join(names)}\noutputs B", buffers, kernels, dict.fromkeys(temps, "f32(64:1)"))
    return text.replace("block [] ( // program", "#program block [] ( // program").replace(
        "block [] ( // main", "#main block [] ( // main"
    )


# --- unstage, fusion, localize, scalarize ------------------------------------------------------------


def test_unstage_folds_the_initial_value_into_a_contraction_that_reaches_every_cell() -> None:
    made = passed(to_stripe(CONV), config("unstage"))
    first, *rest = blocks(kernels_of(made))
    assert {"agg_op_add", "comb_op_mul", "kernel"} <= first.tags and len(rest) == 2
    assert [r.init.value for r in first.refs if r.agg is not None] == ["identity"]
    scattered = to_stripe(bound("function (X[I]) -> (R) { R[2*i : 2 * I] = +(X[i]); }", X=(5,)))
    assert ["init" in b.tags for b in blocks(kernels_of(passed(scattered, config("unstage"))))] == [True, False]


def test_elementwise_blocks_fuse_into_one_body_and_pass_scalars() -> None:
    made = passed(to_stripe(CONV), config("unstage"), config("fusion", a_reqs=("eltwise",), b_reqs=("eltwise",), fused_set=("both",)),
                  config("localize", reqs=("main",)), config("scalarize", reqs=("main",)))  # fmt: skip
    fused = blocks(kernels_of(made))[-1]
    assert "both" in fused.tags and not blocks(fused.body)
    assert sum(isinstance(s, Store) for s in fused.body) == 1 and sum(isinstance(s, Load) for s in fused.body) == 2
    assert [r.into for r in main_of(made).refs if r.dir is Direction.ALLOC] == ["O"]


def test_a_consumer_joins_the_tiles_of_its_producer() -> None:
    tile = config(
        "tile", reqs=("agg_op_add",), sizes={"x": 4, "y": 3, "d": 8}, outer_set=("conv",), inner_set=("tile",)
    )
    eltwise = config("fusion", a_reqs=("eltwise",), b_reqs=("eltwise",), fused_set=("eltwise",))
    made = passed(to_stripe(CONV), config("unstage"), tile, config("prune"), eltwise,
                  config("fusion", a_reqs=("conv",), b_reqs=("eltwise",), fused_set=("fused",)), config("localize", reqs=("main",)))  # fmt: skip
    (nest,) = blocks(kernels_of(made))
    assert [(i.name, i.range) for i in nest.indexes] == [("x", 2), ("y", 2)]
    assert nest.ref("O").dir is Direction.ALLOC and nest.ref("O").type.sizes == (4, 3, 8)
    assert len(nest.body) == 2


@pytest.mark.parametrize(
    "second",
    [
        "R[i : 8] = +(T[i + k]), k < 3;",
        "R[i : 8] = +(T[7 - i]);",
        "R[i : 4] = +(T[2*i]);",
    ],
)
def test_blocks_that_read_elsewhere_do_not_fuse(second: str) -> None:
    program = to_stripe(bound(f"function (X[I]) -> (R) {{ T = X + X; {second} }}", X=(8,)))
    made = passed(program, config("unstage"), config("fusion"))
    assert len(kernels_of(made)) == len(kernels_of(passed(program, config("unstage"))))


def test_localize_keeps_what_iterations_exchange() -> None:
    kernel = """#kernel block [o:2] ( in A[0] f32(64:1) out B[0] f32(64:1) inout T[0] f32(64:1) ) {
      block [i:32, p = o] ( in A[i + 32*p] f32(1:1) out T[i + 32*p] f32(1:1) ) { $a = load(A) T = store($a) }
      block [i:32, p = o] ( in T[i] f32(1:1) out B[i + 32*p] f32(1:1) ) { $a = load(T) B = store($a) } }"""
    text = main_text(kernel, "T")
    made = passed(text, config("localize", reqs=("main",)))
    assert main_of(made).ref("T").dir is Direction.ALLOC, "the second iteration reads what the first wrote"
    moved = passed(text.replace("in T[i] f32(1:1)", "in T[i + 32*p] f32(1:1)"), config("localize", reqs=("main",)))
    assert [r.into for r in main_of(moved).refs] == ["A", "B"]


# --- tensorize, autotile ------------------------------------------------------------------------------


def conv_block() -> Block:
    return blocks(kernels_of(optimize(to_stripe(CONV), Target("t"), passes=[config("unstage")])))[0]


def index(name: str, size: int, outs: int, *ins: int) -> StencilIndex:
    return StencilIndex(name, size, (outs,), ins)


def test_the_cheapest_stencil_wins() -> None:
    wide = Stencil((index("i", 8, -1, -1, 0), index("c", -1, 0, -1, -1)))
    square = Stencil((index("i", 4, -1, -1, 0), index("j", 4, -1, 0, -1), index("c", 4, 0, -1, -1)))
    found = best_match(conv_block(), [wide, square])
    assert found is not None and found.cost == 8 * 6 * 8 * 9 * 4, "neither pads"
    slow = Stencil(square.idxs, startup_cost=100)
    best = best_match(conv_block(), [slow, Stencil(wide.idxs, startup_cost=1)])
    assert best is not None and best.stencil.startup_cost == 1
    padded = Stencil((index("i", 5, -1, -1, 0), index("j", 5, -1, -1, 0)))
    match = best_match(conv_block(), [padded])
    assert match is not None and match.cost > found.cost


def test_stride_rules_choose_indexes() -> None:
    contiguous = Stencil((index("v", -1, 1, 0, 1),))
    found = best_match(conv_block(), [contiguous])
    assert found is not None and found.names == ("d",)
    assert best_match(conv_block(), [Stencil((index("v", -1, 7, 0, 0),))]) is None
    two_inputs = Stencil((StencilIndex("i", 4, (-1,), (-1,)),))
    assert best_match(conv_block(), [two_inputs]) is None, "the block has two inputs"


@pytest.mark.parametrize("only_po2", [True, False])
def test_tiles_fit_with_their_halos(only_po2: bool) -> None:
    search = TileSearch(conv_block(), TileRules(capacity=900, only_po2=only_po2))
    best = search.best()
    assert best is not None and best.bytes <= 900
    assert all(best.cost <= c.cost for c in search.seen.values() if c.bytes <= 900)
    whole = search.evaluate(search.ranges)
    assert whole.bytes == 4 * ((8 + 2) * (6 + 2) * 4 + 3 * 3 * 4 * 8 + 8 * 6 * 8)
    assert TileSearch(conv_block(), TileRules(capacity=8)).best() is None


def test_autotile_knows_its_memory() -> None:
    tile = config("autotile", reqs=("agg_op_add",), memory="SRAN")
    with pytest.raises(TileDeviceError, match=r"no memory unit 'SRAN'(.|\n)*give mem_KiB"):
        passed(to_stripe(CONV), tile)
    model: dict[str, Any] = {
        "clock_mhz": 1,
        "mem_units": {"SRAM": {"count": 1, "size_KiB": 2}},
        "exec_units": {},
        "tx_units": {},
    }
    with pytest.raises(TileDeviceError, match="memories: SRAM"):
        optimize(to_stripe(CONV), Target("t", model=model), passes=[tile])
    for depth in (1, 2):
        chosen = config("autotile", reqs=("agg_op_add",), memory="SRAM", pipeline_depth=depth, outer_set=("tiled",))
        made = optimize(to_stripe(CONV), Target("t", model=model), passes=[config("unstage"), chosen])
        tiled = next(b for b in blocks(kernels_of(made)) if {"tiled", "initialise"} & b.tags)
        nest = blocks(tiled.body)[0] if "initialise" in tiled.tags else tiled
        assert sum(size_of(r) for r in nest.refs) <= 2048 // depth


def tiled(plans: str = "", reqs: tuple[str, ...] = ("agg_op_add",)) -> Scheduled:
    passes = [config("unstage"), config("autotile", reqs=reqs, mem_KiB=2, outer_set=("tiled",))]
    return schedule_passes(to_stripe(CONV), Target("t"), passes=passes, plans=parse_plans(plans), verify=True)


def test_the_tile_is_a_plan_that_may_be_given() -> None:
    chosen = tiled()
    plans = {name: decision.plan for name, decision in chosen.decisions.items()}
    assert len(plans) == 1 and tiled(print_plans(plans)).program == chosen.program
    ((name, decision),) = chosen.decisions.items()
    others = list(decision.others(Target("t")))
    assert others and decision.plan not in others
    again = tiled(print_plans({name: others[0]}))
    assert again.decisions[name].given and again.program != chosen.program
    assert f"plan {name} {{" in print_plans(plans) and "of 2048 bytes" in decision.plan.reason


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (r"serial .*", "", "one serial level"),
        (r"serial .*", "serial x:8", "of 2048 bytes"),
        (r"serial (\w+):\d+", "serial nowhere:1", "no loop 'nowhere'"),
        (r"serial", "vector", "one serial level"),
    ],
)
def test_tiles_that_cannot_be_are_refused(old: str, new: str, message: str) -> None:
    text = print_plans({name: decision.plan for name, decision in tiled().decisions.items()})
    with pytest.raises(TilePlanError) as found:
        tiled(re.sub(old, new, text, count=1))
    assert message in str(found.value)


# --- schedule, cache, placement -------------------------------------------------------------------------


def schedule(**options: Any) -> Any:
    return config("schedule", reqs=("main",), **{**SCHEDULE, **options})


def moves(program: Program) -> list[tuple[str, str]]:
    return [(s.src, s.dst) for s in main_of(program).body if isinstance(s, Transfer)]


def test_values_stay_in_local_memory_between_kernels() -> None:
    made = passed(chain(4), schedule(mem_KiB=0.5))
    assert [a for a, _ in moves(made)] == ["A", "B_SRAM"]
    assert [r.into for r in main_of(made).refs if r.dir is Direction.ALLOC and r.loc.unit == "DRAM"] == []
    assert all(r.offset + size_of(r) <= 512 for r in local_allocations(main_of(made)))


def test_what_does_not_fit_stays_in_far_memory() -> None:
    made = passed(chain(2), schedule(mem_KiB=0.25))
    assert moves(made) == [] and local_allocations(main_of(made)) == []


def test_a_value_that_is_needed_much_later_is_swapped_out_and_in() -> None:
    kernels = [unary("", "T", "A")]
    kernels.append("""#kernel block<DSP> [i:64] ( in C[i] f32(1:1) in D[i] f32(1:1) in E[i] f32(1:1) out U[i] f32(1:1) )
      { $a = load(C) $b = load(D) $c = load(E) $s = add($a, $b) $r = mul($s, $c) U = store($r) }""")
    kernels.append("""#kernel block<DSP> [i:64] ( in T[i] f32(1:1) in U[i] f32(1:1) out B[i] f32(1:1) )
      { $t = load(T) $u = load(U) $s = add($t, $u) B = store($s) }""")
    text = main_text("\n".join(kernels), "T", "U", inputs="A C D E")
    roomy, tight = (passed(text, schedule(mem_KiB=room)) for room in (1.25, 1.0))
    assert not [m for m in moves(roomy) if "T" in m]
    out, back = (n for n, m in enumerate(moves(tight)) if "T" in m)
    assert moves(tight)[out] == ("T_SRAM_1", "T") and moves(tight)[back] == ("T", "T_SRAM")
    assert all(r.offset + size_of(r) <= 1024 for r in local_allocations(main_of(tight)))


def test_banks_are_filled_in_order_and_aligned() -> None:
    made = passed(chain(3, size=33), schedule(mem_KiB=0.25, num_banks=2, alignment=64))
    places = [(r.loc.at[0].evaluate({}), r.offset) for r in local_allocations(main_of(made))]
    assert {bank for bank, _ in places} == {0, 1} and all(offset % 64 == 0 for _, offset in places)


def test_local_copies_that_share_bytes_wait_for_each_other() -> None:
    made = main_of(passed(chain(5), schedule(mem_KiB=0.5)))
    spans = {r.into: (r.offset, r.offset + size_of(r)) for r in local_allocations(made)}
    assert len(set(spans.values())) < len(spans), "bytes are used again"
    for number in range(1, len(made.body)):
        assert number - 1 in made.body[number].deps, "the chain is one after another"


def test_halos_need_leave_to_reach_outside() -> None:
    steps = (config("unstage"), config("locate_block", reqs=("kernel",), loc="DSP"),
             config("tile", reqs=("agg_op_add",), sizes={"x": 4}, outer_set=("tiled",)), config("prune"))  # fmt: skip
    tiles = {**SCHEDULE, "mem_KiB": 8, "resident": False}
    strict = passed(
        to_stripe(CONV), *steps, config("schedule", reqs=("tiled",), **{**tiles, "allow_out_of_range_accesses": False})
    )
    assert local_allocations(main_of(strict)) == []
    made = passed(to_stripe(CONV), *steps, config("schedule", reqs=("tiled",), **tiles))
    nest = blocks(kernels_of(made))[0]
    (copy,) = [b for b in blocks(nest.body) if "swap_in" in b.tags]
    assert copy.constraints and copy.loc is not None and copy.loc.unit == "DMA"
    assert [s.src for s in nest.body if isinstance(s, Transfer)] == ["K", "O_SRAM"]


def test_cache_copies_in_and_out_once_per_iteration() -> None:
    steps = (
        config("unstage"),
        config("tile", reqs=("eltwise",), sizes={"i0": 4}, outer_set=("tiled",)),
        config("prune"),
    )
    made = passed(to_stripe(CONV), *steps, config("cache", reqs=("tiled",)))
    nest = blocks(kernels_of(made))[-1]
    assert [(s.src, s.dst) for s in nest.body if isinstance(s, Transfer)][-1][1] == "R"
    assert all(r.loc.unit == "SRAM" for b in blocks(nest.body) for r in b.refs)
    only = passed(to_stripe(CONV), *steps, config("cache", reqs=("tiled",), dirs=("out",), mem_loc={"name": "LOCAL"}))
    assert [s.dst for s in blocks(kernels_of(only))[-1].body if isinstance(s, Transfer)] == ["R"]


def test_placement_shares_bytes_of_values_that_never_live_together() -> None:
    made = passed(chain(6), config("memory_placement", reqs=("program",), alignment=64))
    temps = {r.into: r.offset for r in main_of(made).refs if r.dir is Direction.ALLOC}
    users = {r.into: r.offset for r in made.entry.refs}
    assert len(set(temps.values())) == 2 and all(temps[f"T{k}"] != temps[f"T{k + 1}"] for k in range(1, 5))
    assert not set(users.values()) & set(temps.values()) or all(o >= 512 for o in temps.values())


def test_placement_keeps_apart_what_may_run_at_once() -> None:
    kernels = "\n".join([unary("", "T1", "A"), unary("", "T2", "A"), unary("", "B", "T1"), unary("", "C", "T2")])
    text = wrap("inputs A\noutputs B, C", {"in A": "f32(64:1)", "out B": "f32(64:1)", "out C": "f32(64:1)"}, kernels,
                {"T1": "f32(64:1)", "T2": "f32(64:1)"}).replace("block [] ( // program", "#program block [] ( // program")  # fmt: skip
    made = passed(text, config("memory_placement"))
    offsets = {r.into: r.offset for r in main_of(made).refs if r.dir is Direction.ALLOC}
    assert abs(offsets["T1"] - offsets["T2"]) >= 256
    assert [r.offset for r in passed(text, config("memory_placement", locs=["SRAM"])).entry.refs] == [0, 0, 0]


def test_first_fit() -> None:
    assert first_fit(4, [], 16) == 0
    assert first_fit(4, [(0, 10), (20, 30)], 4) == 12
    assert first_fit(10, [(20, 30), (0, 10)], 4) == 32
    assert first_fit(4, [(0, 100), (2, 4)], 1, 50) == 100


def test_dependencies_follow_data_and_leave_implied_ones_out() -> None:
    text = chain(3).replace("#kernel ", "")
    assert dependencies(main_of(parse_program(text)), {}) == [((), set[int]()), ((0,), {0}), ((1,), {0, 1})]
    assert dependencies(main_of(parse_program(text)), {"T1": frozenset({"B"}), "B": frozenset({"T1"})})[2][0] == (1,)
    halves = parse_program(wrap("inputs A\noutputs B", {"in A": "f32(8:1)", "out B": "f32(8:1)"}, """
      block [i:4] ( in A[i] f32(1:1) out B[i] f32(1:1) ) { $a = load(A) B = store($a) }
      block [i:4] ( in A[i] f32(1:1) out B[i + 4] f32(1:1) ) { $a = load(A) B = store($a) }
      block [i:2] ( inout B[i + 3] f32(1:1) ) { $a = load(B) B = store($a) }"""))  # fmt: skip
    assert [direct for direct, _ in dependencies(main_of(halves), {})] == [(), (), (0, 1)]


def test_locations() -> None:
    made = passed(to_stripe(CONV), config("unstage"), config("locate_block", reqs=("agg_op_add",), loc={"name": "CONV"}),
                  config("locate_memory", reqs=("main",), loc={"name": "SRAM"}, tags=("tmp",)))  # fmt: skip
    conv, *rest = blocks(kernels_of(made))
    assert conv.loc is not None and conv.loc.unit == "CONV" and all(b.loc is None for b in rest)
    assert {r.into: r.loc.unit for r in main_of(made).refs if r.dir is Direction.ALLOC}.keys() >= {"O"}
    assert conv.ref("O").loc.unit == "SRAM" and main_of(made).ref("R").loc.unit == "DRAM"


def test_who_runs_a_block_has_the_buffers_of_the_blocks_within_to_itself() -> None:
    """Fused blocks lie in one another, with their temporaries."""
    steps = unary("first", "T", "A") + unary("second", "B", "T")
    whole = "in A[0] f32(64:1) out B[0] f32(64:1)"
    text = main_text(f"#inner block<DSP> [] ( {whole} ) {{ block [] ( {whole} none T[0] f32(64:1) ) {{ {steps} }} }}")
    for thread, unit in ((True, "REG"), (False, "DRAM")):
        made = passed(text, config("locate_memory", reqs=("inner",), loc={"name": "REG"}, thread=thread))
        (inner,) = blocks(kernels_of(made))
        (nested,) = blocks(inner.body)
        first, second = blocks(nested.body)
        assert [r.loc.unit for r in (nested.ref("T"), first.ref("T"), second.ref("T"))] == [unit] * 3


def test_prune_removes_unit_loops_dead_buffers_and_wrappers() -> None:
    text = chain(2).replace(
        "block<DSP> [i:64] ( in T1[i]",
        "block [u:1] ( in T1[0] f32(64:1) out B[0] f32(64:1) ) { block [i:64, p = u] ( in T1[i]",
    )
    text = text.replace(
        "{ $a = load(T1) $b = neg($a) B = store($b) }", "{ $a = load(T1) $b = neg($a) B = store($b) } }"
    )
    made = passed(text, config("prune"))
    assert [[i.name for i in b.indexes] for b in blocks(kernels_of(made))] == [["i"], ["i"]]
    dead = chain(2).replace("in T1[i]", "in A[i]").replace("load(T1)", "load(A)")
    assert len(kernels_of(passed(dead, config("prune")))) == 1
