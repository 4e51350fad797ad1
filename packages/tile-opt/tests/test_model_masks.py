"""Masks that each pass of straight-line code makes anew are counted; those that never change, or always hold, are not."""

from __future__ import annotations

import pytest
from tile_ir.stripe.parser import parse_block
from tile_opt.model.masks import masks_of
from tile_opt.model.scheduled import read

KERNEL = """0: #kernel #scheduled block [] ( // kernel_0
    in<DRAM> D[0] float32({width}:1)
    out<DRAM> R[0] float32({width}:1) {{align=64}}
) {{
  0: block [{outer}] ( // kernel_0
      in<DRAM> D[0] float32({width}:1)
      out<DRAM> R[0] float32({width}:1) {{align=64}}
  ) {{
    0: #stage block [{own}, x:{width} #vector(lanes=16)] ( // acc
        -1 + x + v >= 0
        {width} - x - v >= 0
        {last} - x >= 0
        in<DRAM> D[-1 + x + v] float32(1:1)
        inout<DRAM> R[x]:add float32(1:1) {{align=64}}
    ) {{
      0: $D = load(D)
      1: R = store($D)
    }}
  }}
}}"""


@pytest.mark.parametrize(
    ("width", "outer", "own", "counted"),
    [
        (16, "c:4", "v:3", (2, 1)),
        (64, "c:4", "v:3", (2, 2)),  # the vectors in between are inside
        (16, "v:3", "v = v", (0, 0)),  # made before
        (16, "c:4", "v:3 #unroll", (0, 0)),  # known
    ],
)
def test_masks_that_a_loop_of_the_block_moves(width: int, outer: str, own: str, counted: tuple[int, int]) -> None:
    kernel = parse_block(KERNEL.format(width=width, last=width - 1, outer=outer, own=own))
    tree = next(t for t in read(kernel).walk() if t.accesses)
    assert tree.vector is not None
    assert masks_of(tree, tree.vector) == counted
