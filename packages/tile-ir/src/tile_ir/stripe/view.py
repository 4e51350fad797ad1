"""What a refinement is while its block runs in the interpreter."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from tile_ir.dtype import DType, from_numpy
from tile_ir.frozen import frozen
from tile_ir.stripe.nodes import Refinement

Array = npt.NDArray[Any]


@frozen
class View:
    """A refinement while its block runs.

    `data` is the whole buffer as a logical array (with a leading dimension per version while `versioned`);
    the view's element 0 lies at `origin`, and only [low, high) of the buffer may be touched through it.
    """

    ref: Refinement
    data: Array
    origin: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]
    versioned: bool = False

    @property
    def dtype(self) -> DType:
        return from_numpy(self.data.dtype)
