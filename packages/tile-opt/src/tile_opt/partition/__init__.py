"""Cutting a program into tasks over chunks of its arrays, exactly: which cells a chunk needs, and how results combine.

`partition(program, grids)` gives a `Partition`: stages of tasks, each a small program over boxes of arrays, the same
for all chunks of one form. It moves no data and knows no engine: `tile_dask` runs partitions on dask.
"""

from __future__ import annotations

from tile_opt.partition.boxes import Box as Box
from tile_opt.partition.boxes import Grid as Grid
from tile_opt.partition.contraction import ContractionRule as ContractionRule
from tile_opt.partition.partition import Partition as Partition
from tile_opt.partition.partition import partition as partition
from tile_opt.partition.pointwise import ElementwiseRule as ElementwiseRule
from tile_opt.partition.region import Walker as Walker
from tile_opt.partition.rules import Rule as Rule
from tile_opt.partition.traffic import Traffic as Traffic
from tile_opt.partition.traffic import traffic as traffic

__all__ = [
    "Box",
    "ContractionRule",
    "ElementwiseRule",
    "Grid",
    "Partition",
    "Rule",
    "Traffic",
    "Walker",
    "partition",
    "traffic",
]
