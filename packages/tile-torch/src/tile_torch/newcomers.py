"""Sizes that a graph meets for the first time: PyTorch runs it until a program for them would have paid for itself.

A cache that grows by a token, or texts of any length, bring sizes that may never come again, and making a program takes as
long as hundreds of small calls. What renting has cost so far decides (as for skis): at most twice what foresight would take.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from torch._C import _AutoDispatchBelowAutograd  # pyright: ignore[reportPrivateUsage]
from torch.fx import GraphModule

from tile_torch.plans import RECORDERS
from tile_torch.sizes import Sizes

REMEMBERED = 4096
"""Sizes whose costs are kept; the oldest go first."""


class Newcomers:
    """Which sizes of a graph wait for their program, and what they have cost."""

    def __init__(self, module: GraphModule) -> None:
        self._module = module
        self._price: float | None = None
        self._able = True
        self._spent: OrderedDict[Sizes, float] = OrderedDict()

    def wait(self, sizes: Sizes) -> bool:
        """Whether PyTorch shall run these once more; not before a second program has shown what one takes.

        Much of the first one is shared by all later ones, and whoever records programs wants to see them all.
        """
        if self._price is None or RECORDERS or not self._able:
            return False
        return self._spent.get(sizes, 0.0) < self._price

    def run(self, sizes: Sizes, arguments: Sequence[Any]) -> list[Any] | None:
        """The graph's outputs, by PyTorch's own operators; None where these fail, and a program is to say how."""
        start = time.perf_counter()
        try:
            with _AutoDispatchBelowAutograd():
                found = list(self._module(*arguments))
        except Exception:
            self._able = False
            return None
        self._spent[sizes] = self._spent.get(sizes, 0.0) + time.perf_counter() - start
        while len(self._spent) > REMEMBERED:
            self._spent.popitem(last=False)
        return found

    def bought(self, sizes: Sizes, seconds: float) -> None:
        """A program for these was made, and took as long with its first run."""
        self._price = seconds
        self._spent.pop(sizes, None)
