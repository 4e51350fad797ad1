"""join_rows: a product, what becomes of its rows, and the products of those, as one kernel over rows.

Attention multiplies queries with keys, turns each row of scores into weights, and multiplies those with values. As kernels of
their own these exchange a matrix of scores. As one kernel over rows they exchange a row; `step_rows` then takes rows in
pieces and keeps no more than those. Kernels are joined only where it can.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import ClassVar

from tile_ir.stripe.hashing import structural_hash
from tile_ir.stripe.nodes import Block, Program, Statement
from tile_ir.stripe.walk import buffers_written
from tile_ir.target import Target

from tile_opt.blocks.buffers import drop_unused_temporaries, fixed_kernels, in_the_way, temporaries, users
from tile_opt.blocks.tree import kernels_of, with_kernels
from tile_opt.kernel.accumulators import accumulated
from tile_opt.kernel.regroup import drop_unit_loops, joined, localised, share, unique_loops
from tile_opt.kernel.unify import shared_loops
from tile_opt.kernel.view import KernelView, close_kernel, open_kernel
from tile_opt.kernel.work import is_elementwise, is_heavy
from tile_opt.passes.choosing import Choice, Choices, ChoosingPass, Chosen, results
from tile_opt.plan.space.gpu_rows_in_steps import weighed

NEAR = 1.25
"""Times longer than its parts that the one kernel may be estimated to take: of eight on an H200, the median took 0.77 of its estimate."""


@dataclass(frozen=True)
class JoinRows(ChoosingPass):
    """Join at most `most` kernels."""

    name: ClassVar[str] = "join_rows"
    most: int = 12

    def choose(self, program: Program, target: Target) -> Choices:
        chains = _Chains(program, target, self.most)
        for last in reversed(range(len(chains.kernels))):
            chains.join(last)
        kept = tuple(k for k in chains.kernels if k is not None)
        same = len(kept) == len(chains.kernels)
        rest = program if same else drop_unused_temporaries(with_kernels(program, kept))
        return Choices(rest, tuple(chains.choices))


class _Chains:
    """The kernels of a program, and who touches each buffer."""

    def __init__(self, program: Program, target: Target, most: int) -> None:
        self.target, self.most = target, most
        self.kernels: list[Statement | None] = list(kernels_of(program))
        """None where a kernel has become part of a later one."""
        self.temps = temporaries(program)
        self.choices: list[Choice] = []
        self.known: dict[str, tuple[float, float] | None] = {}
        """What kernels were expected to take, by their structure."""
        fixed = fixed_kernels(program)
        self.views = [_flat(k) if isinstance(k, Block) and n not in fixed else None for n, k in enumerate(self.kernels)]
        self.users = users(program)
        self.made = {b for kernel in self.kernels if isinstance(kernel, Block) for b in buffers_written(kernel)}
        """Buffers that some kernel writes."""

    def join(self, last: int) -> None:
        """Kernel `last` with all that it takes rows from, where that can be one kernel."""
        view = self.views[last]
        for rows in sorted(view.reads() & self.made) if view is not None and _is_product(view) else ():
            members = self._members(last, rows)
            made = self._made(members) if members else None
            seconds = self._weighed(made) if made is not None else None
            if made is None or seconds is None:
                continue
            together, apart = seconds
            chosen = Chosen.FUSED if together < NEAR * apart else Chosen.APART
            first, rest = self._views(members[:1]), self._views(members[1:])
            self.choices.append(Choice(chosen, results(first), results(rest), together, apart))
            if chosen is Chosen.FUSED:
                for k in members:
                    self.kernels[k] = self.views[k] = None
                self.kernels[members[-1]] = close_kernel(made)
                return

    def _weighed(self, view: KernelView) -> tuple[float, float] | None:
        """Seconds of the kernel and of its parts; layers of a network are alike, and each kind of them is weighed once."""
        key = structural_hash(close_kernel(view))
        if key not in self.known:
            self.known[key] = weighed(view, self.target)
        return self.known[key]

    def _views(self, members: list[int]) -> list[KernelView]:
        return [view for k in members if (view := self.views[k]) is not None]

    def _members(self, last: int, rows: str) -> list[int]:
        """A product of `rows`, with all from the product that these come from, and what else takes them or finishes sums."""
        back, members = self._back_to_product(rows), set[int]()
        if back is not None:
            made = {b for k in back for b in self._view(k).writes()}
            members = back | {n for b in made for n in self.users[b]}
            members |= {n for b in self._view(last).writes() for n in self.users[b] if self._finishes(n, members)}
        return sorted(members) if last in members and all(self.views[n] is not None for n in members) else []

    def _back_to_product(self, rows: str) -> set[int] | None:
        """The kernels that `rows` comes from, no further than the one product among them; None where there is none, or several."""
        found, waiting, products = set[int](), [rows], 0
        while waiting and len(found) < self.most:
            buffer = waiting.pop()
            for n in self.writers(buffer) - found:
                view = self.views[n]
                if view is None:
                    return None
                found.add(n)
                products += _is_product(view)
                waiting += [] if _is_product(view) else sorted(view.reads() & self.made)
        return found if products == 1 and not waiting else None

    def _finishes(self, number: int, members: set[int]) -> bool:
        """It goes over complete sums, of these members alone, element by element."""
        view = self.views[number]
        if view is None or not all(map(is_elementwise, view.stages)):
            return False
        return all(self.writers(b) <= members for b in view.reads() & self.made)

    def writers(self, buffer: str) -> set[int]:
        """The kernels that write a buffer."""
        return {
            n for n in self.users[buffer] if isinstance(k := self.kernels[n], Block) and buffer in buffers_written(k)
        }

    def _view(self, number: int) -> KernelView:
        view = self.views[number]
        assert view is not None
        return view

    def _made(self, members: list[int]) -> KernelView | None:
        """The members as one kernel over rows; None where they share no loops."""
        if not self._may_move(members):
            return None
        view = reduce(joined, self._views(members))
        elsewhere = {b for b in view.writes() if not self.users[b] <= {*members}}
        view = localised(view, self.temps - elsewhere)
        loops = shared_loops(view.stages, {r.into: r.type for r in (*view.refs, *view.allocs)})
        return accumulated(share(view, loops)) if loops else None

    def _may_move(self, members: list[int]) -> bool:
        """No kernel between the members touches what they write, or writes what they read."""
        reads = {b for v in self._views(members) for b in v.reads()}
        writes = {b for v in self._views(members) for b in v.writes()}
        between = (self.kernels[j] for j in range(members[0], members[-1]) if j not in members)
        return not in_the_way(between, reads, writes)


def _flat(kernel: Block) -> KernelView | None:
    """A kernel all of whose loops are its stages' own."""
    view = open_kernel(kernel)
    return None if view is None or view.loops else unique_loops(drop_unit_loops(view))


def _is_product(view: KernelView) -> bool:
    return any(is_heavy(view, s) for s in view.stages)
