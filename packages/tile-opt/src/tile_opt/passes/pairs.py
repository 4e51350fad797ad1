"""What was chosen for two kernels, kept for all pairs that are the same but for names: programs repeat their layers and steps."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from itertools import chain

from tile_opt.kernel.view import KernelView
from tile_opt.passes.choosing import Choice


@dataclass(slots=True)
class Pairs:
    """Pairs that were met so far. `wholes` are the program's."""

    wholes: Mapping[str, str]
    chosen: dict[Hashable, Choice] = field(default_factory=dict[Hashable, Choice])
    """By what a pair is."""
    _kinds: dict[int, tuple[KernelView, Hashable]] = field(default_factory=dict[int, tuple[KernelView, Hashable]])
    """What kernels are but for names, by their identity, which lasts as long as they are kept here."""
    _numbers: dict[Hashable, int] = field(default_factory=dict[Hashable, int])
    """Of pairs that became one kernel."""

    def met(self, view: KernelView, kind: Hashable) -> None:
        """A kernel that is the same as all others of its kind, but for names."""
        self._kinds[id(view)] = view, kind

    def joined(self, fused: KernelView, pair: Hashable) -> None:
        """A kernel that this pair became."""
        self.met(fused, self._numbers.setdefault(pair, len(self._numbers)))

    def of(self, early: KernelView, late: KernelView, known: Callable[[str], Hashable]) -> Hashable:
        """What a pair is, with what is `known` of each buffer; None where one of them was not met, or two names are of one buffer."""
        kinds = self._kinds.get(id(early)), self._kinds.get(id(late))
        names = [[r.into for r in view.refs] for view in (early, late)]
        numbers = {name: n for n, name in enumerate(dict.fromkeys(chain(*names)))}
        if None in kinds or len({self.wholes.get(name, name) for name in numbers}) < len(numbers):
            return None
        order = tuple([tuple([numbers[name] for name in each]) for each in names])
        return *[kind[1] for kind in kinds if kind is not None], order, tuple([known(name) for name in numbers])
