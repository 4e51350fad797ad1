"""Pipelines of the slides' passes on random programs, and programs from Tile text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tile_ir.dtype import DType
from tile_ir.program.nodes import Program, TensorType
from tile_ir.stripe import interpret
from tile_ir.stripe.nodes import Block, Direction
from tile_ir.stripe.nodes import Program as Stripe
from tile_ir.target import PassConfig, Target
from tile_lang import bind, parse
from tile_opt.pipeline import optimize

STENCILS = [
    {
        "idxs": [
            {"name": "i1", "size": 4, "outs": [-1], "ins": [-1, 0]},
            {"name": "c", "size": -1, "outs": [0], "ins": [-1, -1]},
        ]
    },
    {
        "idxs": [
            {"name": "i1", "size": 2, "outs": [-1], "ins": [-1, 0]},
            {"name": "i2", "size": 2, "outs": [-1], "ins": [0, -1]},
        ]
    },
]


def config(name: str, **options: Any) -> PassConfig:
    return PassConfig(name, name, options)


CONTRACTION = ("agg_op_add", "comb_op_mul")
TILE = {
    "reqs": CONTRACTION,
    "outer_set": ("conv", "tiled"),
    "inner_set": ("conv_inner",),
    "memory": "SRAM",
    "mem_KiB": 0.25,
}
SCHEDULE = {
    "mem_loc": {"name": "SRAM"},
    "mem_KiB": 0.5,
    "alignment": 16,
    "xfer_loc": {"name": "DMA"},
    "allow_out_of_range_accesses": True,
}
STEPS: dict[str, PassConfig] = {
    "unstage": config("unstage"),
    "unstage_plain": config("unstage", fold_init=False),
    "locate": config("locate_block", reqs=("kernel",), loc={"name": "DSP"}),
    "locate_conv": config("locate_block", reqs=CONTRACTION, loc={"name": "CONV"}),
    "fuse_eltwise": config("fusion", a_reqs=("eltwise",), b_reqs=("eltwise",), fused_set=("eltwise",)),
    "fuse_conv": config("fusion", a_reqs=CONTRACTION, b_reqs=("eltwise",), fused_set=("conv", "tiled")),
    "fuse_any": config("fusion", fused_set=("tiled",)),
    "fuse_inside": config("fusion", parent_reqs=("tiled",), fused_set=("inner",)),
    "autotile": config("autotile", **TILE),
    "autotile_po2": config("autotile", **{**TILE, "only_po2": True, "acc_idxs": False}),
    "autotile_rest": config(
        "autotile",
        **{**TILE, "reqs": ("kernel",), "exclude": ("tiled",), "outer_set": ("tiled",), "inner_set": ("inner",)},
    ),
    "tensorize": config(
        "tensorize", reqs=CONTRACTION, outer_set=("CONV",), inner_set=("CONV_inner",), stencils=STENCILS
    ),
    "tensorize_tile": config(
        "tensorize",
        reqs=("conv_inner",),
        outer_set=("CONV",),
        inner_set=("CONV_inner",),
        stencils=STENCILS,
        whole=False,
    ),
    "localize": config("localize", reqs=("main",)),
    "scalarize": config("scalarize", reqs=("main",)),
    "prune": config("prune"),
    "cache": config("cache", reqs=("tiled",), mem_loc={"name": "SRAM"}, xfer_loc={"name": "DMA"}),
    "registers": config("locate_memory", reqs=("inner",), loc={"name": "REG"}, thread=True),
    "deps": config("compute_deps", reqs=("all",)),
    "schedule_tiles": config("schedule", reqs=("tiled",), num_banks=2, pipeline_depth=2, **SCHEDULE),
    "schedule_main": config("schedule", reqs=("main",), **SCHEDULE),
    "schedule_banks": config("schedule", reqs=("main",), num_banks=3, **{**SCHEDULE, "mem_KiB": 0.125}),
    "schedule_inside": config("schedule", reqs=("main",), **{**SCHEDULE, "allow_out_of_range_accesses": False}),
    "place": config("memory_placement", reqs=("program",), locs=[{"name": "DRAM"}], alignment=4),
}
"""Passes by label, set up for tensors of a few hundred bytes."""
PIPELINE = (
    "unstage", "locate", "locate_conv", "fuse_eltwise", "autotile", "prune", "tensorize_tile", "fuse_conv", "autotile_rest",
    "localize", "scalarize", "prune", "registers", "schedule_tiles", "deps", "schedule_main", "place",
)  # fmt: skip
TARGET = Target("slides")


def bound(text: str, **types: tuple[int, ...]) -> Program:
    """A program of float32 tensors from Tile text."""
    return bind(parse(text), {name: TensorType(DType.FLOAT32, shape) for name, shape in types.items()})


def run_passes(program: Stripe, labels: Sequence[str]) -> Stripe:
    """The program after the steps, verified before and after each."""
    return optimize(
        program, TARGET, passes=[PassConfig(STEPS[n].name, n, STEPS[n].options) for n in labels], verify=True
    )


def same_results(before: Stripe, after: Stripe, inputs: Mapping[str, Any]) -> None:
    """Both programs give the same outputs; sums may be in another order."""
    expected, got = interpret.run(before, inputs), interpret.run(after, inputs)
    for name, value in expected.items():
        if value.dtype.kind in "fV":
            # float16 sums in another order differ by a rounding of the largest partial sum
            tight = 2e-5 if value.dtype.itemsize > 2 else 1e-2
            np.testing.assert_allclose(
                got[name].astype(np.float64), value.astype(np.float64), rtol=tight, atol=tight, err_msg=name
            )
        else:
            np.testing.assert_array_equal(got[name], value, err_msg=name)


def untagged(stripe: Stripe) -> Stripe:
    """The program without any tag."""
    from dataclasses import replace

    def bare(block: Block) -> Block:
        refs = tuple(replace(r, tags=frozenset()) for r in block.refs)
        body = tuple(bare(s) if isinstance(s, Block) else s for s in block.body)
        return replace(block, tags=frozenset(), refs=refs, body=body)

    return replace(stripe, entry=bare(stripe.entry))


def local_allocations(block: Block, unit: str = "SRAM") -> list[Any]:
    """Allocations in a memory, anywhere in the block."""
    found = [r for r in block.refs if r.dir is Direction.ALLOC and r.loc.unit == unit]
    return found + [r for s in block.body if isinstance(s, Block) for r in local_allocations(s, unit)]
