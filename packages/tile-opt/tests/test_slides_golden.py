"""The slides' before and after pairs, as corrected twins, and the slides' configurations as printed.

The slides contradict themselves: their pairs lack constraints and outputs, name indexes that do not exist and give
views the wrong widths; their tables of costs come from weights that are not shown. The twins are whole programs.
Regenerate the after texts with ``python test_slides_golden.py``.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from slides_support import PIPELINE, bound, run_passes, same_results
from tile_ir.jsonc import read_json
from tile_ir.stripe.nodes import Block, Program
from tile_ir.stripe.parser import parse_program
from tile_ir.stripe.printer import print_program
from tile_ir.target import Target
from tile_opt.blocks.tree import kernels_of
from tile_opt.passes import create
from tile_opt.pipeline import optimize
from tile_opt.translate import to_stripe

FOLDER = Path(__file__).parent / "golden_slides"
MODEL = """"model": { "clock_mhz": 800,
  "mem_units": { "DRAM": { "count": 1, "size_KiB": 1048576 }, "SRAM": { "count": 4, "size_KiB": 64 }, },
  "exec_units": { "DSP": { "count": 4, "ops_per_cycle": 64 }, "CONV": { "count": 4, "ops_per_cycle": 512, "pipeline_depth": 2 } },
  "tx_units": { "DMA": { "count": 1 }, "NOC": { "count": 1 }, },
  "buses": [
    { "sources": ["DRAM[0]"], "sinks": ["DMA[0]"], "bytes_per_cycle": 64 },
    { "sources": ["DMA[0]"], "sinks": ["DRAM[0]"], "bytes_per_cycle": 64 },
  ] }"""
TENSORIZE = """{ "name": "tensorize", "tensorize": { "reqs": [ "agg_op_add", "comb_op_mul" ], "outer_set": [ "CONV" ],
  "inner_set": [ "CONV_inner" ], "whole": false, "stencils": [
    {"startup_cost": 8, "idxs": [{ "name": "i1", "size": 32, "outs": [-1], "ins": [-1, 0] }, { "name": "c", "size": -1, "outs": [ 0], "ins": [-1, -1] }]},
    {"startup_cost": 8, "idxs": [{ "name": "i1", "size": 4, "outs": [-1], "ins": [-1, 0] }, { "name": "i2", "size": 4, "outs": [-1], "ins": [ 0, -1] },
      { "name": "c", "size": -1, "outs": [0], "ins": [-1, -1] } ]},] } }"""
AUTOTILE = """{ "name": "autotile", "autotile": { "reqs" : ["conv"], "outer_set" : ["conv"], "inner_set" : ["conv_inner"],
  "only_po2" : %s, "memory" : "SRAM" // "pipeline_depth" : 2
} }"""
FUSION = """{ "name": "tile_first", "tile": { "reqs": ["first"], "sizes": { "x": 1, "y": 1, "co": 16 } } },
  { "name": "prune", "prune": { } },
  { "name": "fuse", "fusion": {"a_reqs": ["CONV"], "b_reqs": ["CONV"], "fused_set": ["CONV", "fused"] } },
  { "name": "localize_main", "localize": { "reqs": ["main"] } },
  { "name": "to_SRAM", "locate_memory": { "reqs": ["fused"], "loc": { "name": "SRAM" } } },
  { "name": "prune", "prune": { } }"""
CASES = {
    "tensorize": ("tensorize_before", TENSORIZE),
    "tensorize_whole": ("tensorize_before", TENSORIZE.replace('"whole": false, ', "")),
    "autotile_po2": ("autotile_before", AUTOTILE % "true"),
    "autotile": ("autotile_before", AUTOTILE % "false"),
    "fusion": ("fusion_before", FUSION),
}


def read(name: str) -> Program:
    return parse_program((FOLDER / f"{name}.stripe").read_text(encoding="utf-8"))


def slides_target(passes: str) -> Target:
    import json

    return Target.from_json(json.dumps(read_json(f'{{ "name": "slides", {MODEL}, "passes": [ {passes} ] }}')))


def after(case: str) -> Program:
    before, passes = CASES[case]
    return optimize(read(before), slides_target(passes), verify=True)


@pytest.mark.parametrize("case", CASES)
def test_the_pass_gives_the_after_text(case: str) -> None:
    assert print_program(after(case)) == (FOLDER / f"{case}_after.stripe").read_text(encoding="utf-8")


SMALL: dict[str, dict[str, int]] = {
    "tensorize": {"1024": 9, "1023": 8}, "tensorize_whole": {"1024": 9}, "autotile_po2": {"256": 8},
    "autotile": {"256": 7}, "fusion": {"100": 5, "128": 32},
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_pass_keeps_the_meaning_of_a_small_twin(case: str) -> None:
    program = shrunk(CASES[case][0], SMALL[case])
    rng = np.random.default_rng(0)
    data = {
        n: rng.integers(-3, 4, program.entry.ref(n).type.sizes).astype(program.entry.ref(n).type.dtype.numpy)
        for n in program.inputs
    }
    passes = CASES[case][1].replace('"memory" : "SRAM"', '"memory" : "SRAM", "mem_KiB": 0.5')
    made = optimize(program, slides_target(passes), verify=True)
    assert made != program
    same_results(program, made, data)


def shrunk(name: str, sizes: dict[str, int]) -> Program:
    """The before program with other extents and packed strides."""
    import re

    text = (FOLDER / f"{name}.stripe").read_text(encoding="utf-8")
    for old, new in {**sizes, "64": 6, "32": 4}.items():
        text = re.sub(rf"(?<![\d:]){old}(?=[:,\]) -])", str(new), text)
        text = re.sub(rf"(\w):{old}(?=[,\]])", rf"\g<1>:{new}", text)
    whole: dict[str, list[int]] = {}

    def packed(match: re.Match[str]) -> str:
        extents = [int(e.split(":")[0]) for e in match[4].split(",")]
        whole.setdefault(match[1], extents)
        strides = [int(np.prod(whole[match[1]][k + 1 :])) for k in range(len(extents))]
        return f"{match[1]}{match[2]}{match[3]}({', '.join(f'{e}:{s}' for e, s in zip(extents, strides, strict=True))})"

    return parse_program(re.sub(r"(\w+)(\[[^\]]*\](?::add)? )(i8|fp32)\(([^)]*)\)", packed, text))


def test_fusing_contractions_leaves_a_chunk_of_channels_in_local_memory() -> None:
    (wrapper,) = [k for k in kernels_of(after("fusion")) if isinstance(k, Block)]
    (fused,) = [b for b in wrapper.body if isinstance(b, Block)]
    assert {i.name: i.range for i in fused.indexes} == {"co": 8, "x": 100, "y": 100}
    local = fused.ref("O1")
    assert (local.type.sizes, local.loc.unit, local.source) == ((1, 1, 16), "SRAM", "")
    first, second = (b for b in fused.body if isinstance(b, Block))
    assert {i.name: i.range for i in first.indexes if i.value is None} == {"ci": 64, "co": 16, "i": 3, "j": 3}
    assert sorted(i.range for i in second.indexes if i.value is None) == [16, 128]


def test_tiles_fit_the_memory() -> None:
    for case in ("autotile", "autotile_po2"):
        (nest,) = [k for k in kernels_of(after(case)) if isinstance(k, Block)]
        while "initialise" in nest.tags:
            (nest,) = [b for b in nest.body if isinstance(b, Block)]
        total = sum(int(np.prod(r.type.sizes)) for r in nest.refs)
        assert 16 * 1024 < total <= 64 * 1024
        (tile,) = [b for b in nest.body if isinstance(b, Block)]
        ranges = [i.range for i in tile.indexes if i.value is None]
        assert case == "autotile" or all(r & (r - 1) == 0 or r == 3 for r in ranges)


EACH: dict[str, tuple[str, ...]] = {
    "unstage": ("unstage",),
    "fusion_eltwise": ("unstage", "fuse_eltwise"),
    "localize": ("unstage", "fuse_eltwise", "localize"),
    "scalarize": ("unstage", "fuse_eltwise", "localize", "scalarize"),
    "locate_block": ("unstage", "locate", "locate_conv"),
    "tile": ("unstage", "autotile_rest"),
    "prune": ("unstage", "autotile_rest", "prune"),
    "cache": ("unstage", "autotile_rest", "prune", "cache"),
    "compute_deps": ("unstage", "autotile_rest", "prune", "cache", "deps"),
    "schedule_tiles": ("unstage", "locate", "autotile_rest", "prune", "schedule_tiles"),
    "schedule_main": ("unstage", "locate", "schedule_main"),
    "memory_placement": ("unstage", "locate", "place"),
    "locate_memory": ("unstage", "autotile_rest", "registers"),
    "whole_pipeline": PIPELINE,
}
"""A golden text per pass: the steps of `slides_support` that lead to it, on one small program."""
TINY = bound(
    "function (A[M, K], B[K, N], C[N]) -> (R) { P[i, j : M, N] = +(A[i, k] * B[k, j]); Q = P + C; R = (Q > 0 ? Q : 0); }",
    A=(6, 5), B=(5, 7), C=(7,),
)  # fmt: skip


def after_steps(case: str) -> str:
    return print_program(run_passes(to_stripe(TINY), EACH[case]))


@pytest.mark.parametrize("case", EACH)
def test_every_pass_has_a_golden_text(case: str) -> None:
    assert after_steps(case) == (FOLDER / f"pass_{case}.stripe").read_text(encoding="utf-8")


OPTIMIZER = """
{ "name": "fuse_CONV_add", "fusion": { "a_reqs": ["CONV"], "b_reqs": ["eltwise_add"], "fused_set": ["CONV"] } },
{ "name": "fuse_CONV_zelu", "fusion": { "a_reqs": ["CONV"], "b_reqs": ["eltwise_zelu"], "fused_set": ["CONV"] } },
{ "name": "fuse_CONV", "fusion": { "parent_reqs": ["CONV"], "fused_set": ["CONV_inner"] } },
{ "name": "localize_main", "localize": { "reqs": ["main"] } },
{ "name": "scalarize_main", "scalarize": { "reqs": ["main"] } },
{ "name": "loc_CONV", "locate_block": { "reqs": ["CONV"], "loc": { "name": "CONV" } } },
{ "name": "loc_pool", "locate_block": { "reqs": ["agg_op_max"], "loc": { "name": "DSP" } } },
{ "name": "loc_eltwise", "locate_block": { "reqs": ["eltwise"], "loc": { "name": "DSP" } } },
{ "name": "deps_main", "compute_deps": { "reqs": ["main"] } },
{ "name": "schedule_main", "schedule": { "reqs": ["main"], "mem_loc": { "name": "SRAM" }, "mem_KiB": 16.0,
  "alignment": 16, "xfer_loc": { "name": "DMA" }, "allow_out_of_range_accesses": true, "num_banks": 4 } },
{ "name": "place_program", "memory_placement": { "reqs": ["program"], "locs": [{ "name": "DRAM" }], "alignment": 4 } },
"""


@pytest.mark.parametrize(
    "passes", [OPTIMIZER, TENSORIZE, AUTOTILE % "true", FUSION], ids=["optimizer", "tensorize", "autotile", "fusion"]
)
def test_the_slides_configurations_are_read_as_printed(passes: str) -> None:
    target = slides_target(passes)
    for entry in target.passes:
        made = create(entry)
        assert made == create(entry) and hash(made) == hash(create(entry))
    assert Target.from_json(target.to_json()) == target
    optimize(read("fusion_before"), target, verify=True)


def main() -> None:
    for case in CASES:
        (FOLDER / f"{case}_after.stripe").write_text(print_program(after(case)), encoding="utf-8")
    for case in EACH:
        (FOLDER / f"pass_{case}.stripe").write_text(after_steps(case), encoding="utf-8")


if __name__ == "__main__":
    main()
