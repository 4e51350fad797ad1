"""What a space asks about a kernel: which loop runs along memory, how wide accesses may be, what may be shared out."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod

from tile_ir.stripe.affine import Affine, names_in
from tile_ir.stripe.nodes import Index

from tile_opt.kernel.strides import flat_stride, has_all_cells, row_starts
from tile_opt.kernel.unify import is_atomic, is_indirect
from tile_opt.kernel.view import KernelView, Stage, Use, is_parallel
from tile_opt.kernel.work import merged_use, points
from tile_opt.plan.steps.digits import lanes_agree
from tile_opt.plan.steps.groups.homes import is_plain, keeps_apart

NEAR = 4
"""Iterations apart at which accesses are for neighbours."""


@dataclass(frozen=True)
class Facts:
    """Questions about a view whose own loops are named alike; answers are kept."""

    view: KernelView

    @cached_property
    def loops(self) -> dict[str, Index]:
        """Every loop by name: shared ones, then own ones in the order of their stages."""
        return {i.name: i for i in (*self.view.loops, *(i for s in self.view.stages for i in s.loops))}

    @cached_property
    def shared(self) -> tuple[str, ...]:
        return tuple(i.name for i in self.view.loops)

    @cached_property
    def main(self) -> Stage:
        """The stage with the most points; of several the one with the most accesses to memory."""
        ranges = self.view.ranges
        return max(self.view.stages, key=lambda s: (points(s, ranges), sum(1 for u in s.uses if self.in_memory(u))))

    def extent(self, loop: str) -> int:
        return self.loops[loop].range

    def in_memory(self, use: Use) -> bool:
        return not self.view.is_local(use.buffer)

    @cached_property
    def accesses(self) -> tuple[tuple[Stage, Use], ...]:
        """What stages read and write of memory."""
        return tuple((s, u) for s in self.view.stages for u in s.uses if self.in_memory(u))

    def stride(self, use: Use, loop: str) -> int:
        return flat_stride(self.view, use, loop)

    def bytes(self, use: Use) -> int:
        return self.view.type_of(use.buffer).dtype.bytes

    @cached_property
    def along(self) -> str | None:
        """The loop along which most bytes of memory are neighbours."""
        moved = [(s, u, self.bytes(u) * self._elements(s, u)) for s, u in self.accesses]
        gain = {n: sum(size for _, u, size in moved if abs(self.stride(u, n)) == 1) for n in self.loops}
        best = max(reversed(gain), key=lambda n: gain[n], default=None)
        return best if best is not None and gain[best] else None

    def _elements(self, stage: Stage, use: Use) -> int:
        """What an access touches: an element for each iteration where data says which, else one for those that it moves with."""
        ranges = self.view.ranges
        if use.extent or is_indirect(stage, use):
            return points(stage, ranges)
        return prod(ranges[n] for n in names_in(use.forms))

    def lanes(self, loop: str, most: int, skipped: Container[str] = (), ragged: bool = False) -> int:
        """The widest vector along `loop`, of at most `most` bytes, that every access takes as one aligned piece.

        Accesses to the buffers `skipped` do not count. Vectors divide the loop unless it may be `ragged`.
        """
        moving = [(s, u) for s, u in self.accesses if loop in self._all_loops(s) and u.buffer not in skipped]
        widest = max((self.bytes(u) for _, u in moving), default=4)
        lanes = max(1, most // widest)
        while lanes > 1 and not (
            self._may_widen(loop, lanes) and all(self._wide(s, u, loop, lanes) for s, u in moving)
        ):
            lanes //= 2
        whole = self.extent(loop) % lanes == 0 or (ragged and self.extent(loop) > lanes)
        return lanes if whole else self.lanes(loop, lanes // 2 * widest, skipped, ragged)

    def _all_loops(self, stage: Stage) -> tuple[str, ...]:
        return (*self.shared, *stage.loop_names)

    def _may_widen(self, loop: str, lanes: int) -> bool:
        """All lanes of an access run, or none."""
        index = self.loops[loop]
        if not is_parallel(index):
            return False
        return all(lanes_agree(c, loop, lanes) for s in self.view.stages for c in (*s.constraints, *s.guard))

    def _wide(self, stage: Stage, use: Use, loop: str, lanes: int) -> bool:
        """One access for neighbours: they are neighbours in memory and start aligned, or are all the same element."""
        stride = self.stride(use, loop)
        if stride == 0:
            return True
        aligned = row_starts(self.view, use, [n for n in self._all_loops(stage) if n != loop]) % lanes == 0
        return stride == 1 and aligned and not use.extent and not is_indirect(stage, use)

    # --- sharing out own loops ----------------------------------------------------------------------

    def may_share(self, loops: frozenset[str]) -> bool:
        """Items may divide the iterations of these own loops between them."""
        return (
            all(is_parallel(self.loops[n]) for n in loops)
            and all(self._may_share(s, loops & set(s.loop_names)) for s in self.view.stages)
            and all(keeps_apart([a for a in self.accesses if a[1].buffer == b], loops) for b in self.view.writes())
            and not any(self._is_mixed(s, loops) for s in self.view.stages)
        )

    def _may_share(self, stage: Stage, loops: frozenset[str]) -> bool:
        """Each iteration writes cells of its own, or adds to one that items keep a partial result of.

        So it does where data chooses cells of the kernel's own, and no two iterations the same one.
        """
        merged = merged_use(stage)
        for use in stage.uses:
            moved = names_in(use.forms)
            if not use.writes or not loops:
                continue
            if is_indirect(stage, use) or use.extent:
                if self.in_memory(use) or use.agg is not None or not is_atomic(stage, use):
                    return False
                continue
            if not loops <= moved and (use is not merged or self.in_memory(use) or not self._has_all_cells(use)):
                return False
        return True

    def _is_mixed(self, stage: Stage, loops: frozenset[str]) -> bool:
        """One item alone would store some of what `stage` makes, and every item needs the rest of it."""
        written = {self._is_common(u.buffer, loops) for u in stage.uses if u.writes}
        return len(written) > 1 and not loops <= set(stage.loop_names)

    def _is_common(self, buffer: str, loops: frozenset[str]) -> bool:
        """All items of a group see what one of them stores there: memory, and rows of which they read what others made."""
        users = self.view.users(buffer)
        moved = {n for _, u in users for f in u.forms for n in f.names}
        return not self.view.is_local(buffer) or (bool(loops & moved) and not is_plain(users))

    def _has_all_cells(self, use: Use) -> bool:
        """No iteration of the loops, whatever constraints say of it, is at a cell that the buffer does not have."""
        return has_all_cells(use, self.view.type_of(use.buffer).sizes, self.view.ranges)

    def rows(self, loops: frozenset[str]) -> tuple[str, ...]:
        """The kernel's own buffers that have a cell per iteration of some of these loops."""
        moved = {u.buffer for u in self.view.uses for f in u.forms if loops & set(f.names)}
        return tuple(a.into for a in self.view.allocs if a.into in moved)

    def scatters(self, loop: str) -> bool:
        """Iterations of this loop store to cells of the kernel's own that data chooses."""
        stages = (s for s in self.view.stages if loop in s.loop_names)
        return any(u.writes and is_indirect(s, u) and self.view.is_local(u.buffer) for s in stages for u in s.uses)

    def slid(self, along: str | None) -> tuple[str, ...]:
        """Shared loops, not `along`, whose neighbouring iterations read some of the same elements: windows overlap."""
        return tuple(dict.fromkeys(n for stage, use in self.accesses for n in self._slid(stage, use, along)))

    def _slid(self, stage: Stage, use: Use, along: str | None) -> Iterator[str]:
        for form in use.forms if use.reads else ():
            own = [(n, c) for n, c in form.terms if n in stage.loop_names]
            shared = [(n, c) for n, c in form.terms if n in self.shared and n != along]
            if len(shared) == 1 and any(abs(shared[0][1]) < (self.extent(n)) * abs(c) for n, c in own):
                yield shared[0][0]

    def repeated(self, along: str | None) -> tuple[str, ...]:
        """Shared loops, innermost first, all of whose iterations read the same row of elements along `along`."""
        rows = [names_in(u.forms) for _, u in self.accesses if u.reads and along in names_in(u.forms)]
        return tuple(n for n in reversed(self.shared) if n != along and any(n not in names for names in rows))

    def shifted(self, along: str | None) -> tuple[str, ...]:
        """Shared loops, not `along`, a few of whose iterations apart accesses read the same elements."""
        return tuple(n for n in self.shared if n != along and self._is_shifted(n))

    def _is_shifted(self, loop: str) -> bool:
        met: dict[tuple[str, Affine], set[int]] = {}
        for form, buffer in ((f, u.buffer) for _, u in self.accesses if u.reads for f in u.forms):
            if form.names == (loop,) and abs(form.coefficient(loop)) == 1:
                met.setdefault((buffer, form - form.const), set()).add(form.const)
        return any(len(at) > 1 and max(at) - min(at) <= NEAR for at in met.values())

    def reduces(self, loop: str) -> bool:
        """Some stage adds up the iterations of this own loop."""
        merged = (merged_use(s) for s in self.view.stages if loop in s.loop_names)
        return any(m is not None and not any(loop in f.names for f in m.forms) for m in merged)

    def outlives(self, row: str) -> bool:
        """Items meet only their own part of this row, and not only in neighbouring stages that take the same steps."""
        users = [(k, u) for k, s in enumerate(self.view.stages) for u in s.uses if u.buffer == row]
        first, last = users[0][0], users[-1][0]
        moved = names_in(users[0][1].forms)
        between = self.view.stages[first : last + 1]
        together = all(any(u.buffer == row for u in s.uses) for s in between) and not any(
            m is not None and not moved <= names_in(m.forms) for m in map(merged_use, between)
        )
        return is_plain(self.view.users(row)) and not together

    def iterations(self) -> int:
        """Of the shared loops."""
        return prod(i.range for i in self.view.loops)
