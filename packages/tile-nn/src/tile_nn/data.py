"""Batches of examples."""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from typing import Any

import numpy as np
import tile_runtime as tile

from tile_nn.errors import wrong_number, wrong_shape


def batches(arrays: Any, size: int, *, seed: int | None = None, partial: bool = False) -> Iterator[Any]:
    """Parts of `size` examples of a tree of arrays, which count examples along axis 0, as trees of the same form.

    In random order where there is a `seed` (another for each epoch), else as they are. What is left at the end comes
    with `partial` only: another size is another program.
    """
    if size < 1:
        raise wrong_number(f"batches of {size} examples", "a batch has at least one")
    counts = {len(a) for a in tile.tree_leaves(arrays)}
    if len(counts) != 1:
        raise wrong_shape(f"arrays of {sorted(counts)} examples", "all have the same number along axis 0")
    (count,) = counts
    order = np.arange(count) if seed is None else np.random.default_rng(seed).permutation(count)
    for start in range(0, count if partial else count - size + 1, size):
        yield tile.tree_map(itemgetter(order[start : start + size]), arrays)
