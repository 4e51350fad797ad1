"""Cutting a program into tasks over chunks of its arrays, exactly: which cells a chunk needs, and how results combine.

`partition(program, grids)` gives a `Partition`: stages of tasks, each a small program over boxes of arrays, the same
for all chunks of one form. It moves no data and knows nothing of dask.
"""

from __future__ import annotations

from tile_opt.regions import Box as Box

from tile_dask.partitions.chunks import Grid as Grid
from tile_dask.partitions.partition import Partition as Partition
from tile_dask.partitions.partition import partition as partition
from tile_dask.partitions.speeds import GRAPHICS as GRAPHICS
from tile_dask.partitions.speeds import PROCESSOR as PROCESSOR
from tile_dask.partitions.speeds import Speed as Speed
from tile_dask.partitions.traffic import Traffic as Traffic
from tile_dask.partitions.traffic import traffic as traffic

__all__ = ["GRAPHICS", "PROCESSOR", "Box", "Grid", "Partition", "Speed", "Traffic", "partition", "traffic"]
