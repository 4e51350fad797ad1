"""Windows that overlap share what they aggregate: fewer operations, the same results."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from lowering_support import check
from test_gpu_windows import TARGET, Case, agree, contracted, front
from test_group_chains import small_groups as small_groups
from test_item_chains import stripe_of, target
from tile_ir.dtype import DType
from tile_ir.stripe import interpret
from tile_ir.stripe.nodes import Bind, Block, Program
from tile_ir.stripe.walk import blocks_in
from tile_opt.blocks.tree import kernels_of
from tile_opt.kernel.overlaps import fewest
from tile_opt.passes.kernels.group_tile import GroupTile
from tile_opt.pipeline import optimize
from tile_opt.plan.space.gpu.tiles import ranked

VALID = "function (D[H, W]) -> (R) {{ R[y, x : H - 6, W - 4] = {}(D[y + i, x + j]), i < 7, j < 5; }}"
PASSES = """function (A[H, W]) -> (O) {
    P[y, x : H, W - 6] = >(A[y, x + j]), j < 7;
    O[y, x : H - 6, W - 6] = +(P[y + i, x]), i < 7;
}"""


def merged(program: Program) -> int:
    """Points of straight-line code that merge into something."""
    blocks = (b for k in kernels_of(program) if isinstance(k, Block) for b in blocks_in(k))
    sums = (
        b for b in blocks if any(r.agg is not None for r in b.refs) and not any(isinstance(s, Block) for s in b.body)
    )
    return sum(prod(i.range for i in b.indexes if i.bind is Bind.UNROLL) for b in sums)


def test_blocks_of_cells_share_as_long_as_that_takes_fewer_operations() -> None:
    assert fewest(4, 15) == (6.0, 4)
    assert fewest(6, 15) == (9.0, 2), "blocks are powers of two that divide the cells"
    assert fewest(16, 2) == (2.0, 1), "pairs of three elements take as many"


@pytest.mark.parametrize(("agg", "dtype"), [("+", DType.FLOAT32), (">", DType.FLOAT32), ("+", DType.FLOAT16)])
def test_windows_of_neighbours_are_aggregated_together(agg: str, dtype: DType) -> None:
    """Along one loop, and then along the other."""
    program = front(Case(VALID.format(agg), {"D": (40, 20)}, dtype))
    view = contracted(program)
    for _, made in ranked(view, TARGET)[:2]:
        plan = made()
        agree(program, plan, dtype)
        cells = prod(c.size for level in plan.bound(Bind.GROUP) for c in level.covers)
        assert merged(GroupTile().schedule(program, TARGET, {view.name: plan}).program) < 7 * cells * 5


@pytest.mark.usefixtures("small_groups")
def test_parts_of_a_chain_share_too() -> None:
    """Not a number stays one, and nothing that is infinite is subtracted."""
    stripe = stripe_of(PASSES, DType.FLOAT32, A=(20, 38))
    scheduled = optimize(stripe, target(), verify=True)
    assert len(list(kernels_of(scheduled))) == 1
    values = np.random.default_rng(0).integers(-9, 9, (20, 38)).astype(np.float32)
    values[3, 5], values[11, 30], values[17, 9] = np.inf, np.nan, -np.inf
    check(scheduled, {"A": values}, target(), expected=interpret.run(stripe, {"A": values}))
    assert merged(scheduled) == 42, "70 where each cell has a window of its own"
