"""Loops whose rounds treat every element by itself, as one kernel: an element goes through all rounds, one after the other.

What such a loop carries stays in registers, and each row is read and written once. Where a round is a kernel, its launch
takes longer than what the elements of a row do. The kernel is not scheduled yet: elements run side by side as any do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from tile_ir.names import claim
from tile_ir.program.nodes import Program
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Block, Direction, Index, Load, Order, Refinement, Statement, Store, TensorType
from tile_ir.stripe.nodes import Program as StripeProgram
from tile_ir.target import Target

from tile_opt.blocks.tree import main_of
from tile_opt.kernel.merge_stages import concatenated
from tile_opt.kernel.unify import is_indirect, moves_alone
from tile_opt.kernel.view import KernelView, Stage, Use, close_kernel, open_kernel
from tile_opt.kernel.work import is_elementwise
from tile_opt.loops.round import Round, needed
from tile_opt.loops.serial import Serial, in_place, view_of

FUSED = "merge"
"""The pass after which a round that treats every element by itself is one stage of one kernel."""


def takes_walks(target: Target) -> bool:
    """Whether kernels of the target have items enough side by side for elements to go through rounds each on its own."""
    return target.codegen == "semtree" and target.settings.threads > 1


def walked(round: Round, stripe: StripeProgram, program: Program, name: str) -> Serial | None:
    """A loop of `program` as an unscheduled kernel called `name`; `stripe` is what the passes up to FUSED make of a round.

    None where a round is more than one elementwise stage, or reads what is carried elsewhere than where it leaves it.
    """
    opened = (open_kernel(k) if isinstance(k, Block) else None for k in main_of(stripe).body)
    views = [None if v is None or v.allocs else v.unshared() for v in opened]
    stage = _joined([v.stages[0] for v in views if v is not None])
    if stage is None or None in views:
        return None
    walk = _Walk(round, stripe, stage, "\n".join(v.comment for v in views if v is not None))
    return walk.finished(name, program, needed(program)) if walk.is_apart() else None


def _joined(stages: Sequence[Stage]) -> Stage | None:
    """Elementwise stages as one; None for stages over other points, or that read each other's results elsewhere."""
    shapes = {tuple(i.range for i in s.loops) for s in stages}
    if len(shapes) != 1 or not all(map(is_elementwise, stages)):
        return None
    whole, *others = stages
    for stage in others:
        moved = stage.renamed(dict(zip(stage.loop_names, whole.loop_names, strict=True)))
        written = {u.buffer: u for u in whole.uses if u.writes}
        if any(u.writes or u.forms != written[u.buffer].forms for u in moved.uses if u.buffer in written):
            return None
        whole = concatenated(whole, moved, written)
    return whole


@dataclass(slots=True)
class _Walk:
    """The kernel of a loop's rounds, as it is made; `stage` is one round of one element."""

    round: Round
    stripe: StripeProgram
    stage: Stage
    comment: str
    taken: set[str] = field(init=False)
    views: list[Refinement] = field(default_factory=list[Refinement])
    """What the kernel sees from outside."""
    inputs: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Buffers that it reads, with the values of the program that they are."""
    outputs: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """The same of what it gives."""

    def __post_init__(self) -> None:
        buffers = (r.into for r in (*self.stripe.entry.refs, *main_of(self.stripe).refs))
        self.taken = {*buffers, *self.stage.names(), *self.stage.loop_names}

    @property
    def carried(self) -> tuple[str, ...]:
        """The round's buffers of what it is given from the round before."""
        return self.stripe.inputs[: len(self.round.loop.carries)]

    @property
    def left(self) -> Mapping[str, str]:
        """The round's buffer of each value that it leaves."""
        return dict(zip(self.round.outputs, self.stripe.outputs, strict=True))

    @property
    def _kept(self) -> list[Use]:
        """The accesses to what is carried, as it is read and as it is left."""
        fed = {self.left[s] for s in self.round.sources if isinstance(s, str)}
        return [u for u in self.stage.uses if u.buffer in fed.union(self.carried)]

    @property
    def cell(self) -> tuple[Affine, ...]:
        """Where an element of what is carried lies."""
        return self._kept[0].forms

    def is_apart(self) -> bool:
        """What is carried is read where it is left: an element of it depends on no other."""
        stage, uses, sizes = self.stage, self._kept, {t.shape for t in self.round.loop.types[: len(self.carried)]}
        alone = all(moves_alone(u, i.name, stage) for u in uses for i in stage.loops if i.range > 1)
        direct = not (stage.constraints or stage.guard or any(u.extent or is_indirect(stage, u) for u in uses))
        return len(sizes) == len({u.forms for u in uses}) == 1 and direct and alone

    # --- around the rounds --------------------------------------------------------------------------------

    def finished(self, name: str, program: Program, wanted: Set[str]) -> Serial:
        types = {r.into: r.type for r in self.stripe.entry.refs}
        loop, captured = self.round.loop, self.stripe.inputs[len(self.carried) + len(self.round.loop.slices) :]
        self.views = [view_of(Direction.IN, n, types[n]) for n in (*captured, *(c.name for c in self.stripe.constants))]
        self.inputs = list(zip(captured, self.round.captured, strict=True))
        own = [TensorType.row_major(types[n].dtype, (1,)) for n in self.carried]
        allocs = [
            Refinement.allocation(claim(f"{n}_state", self.taken), t) for n, t in zip(self.carried, own, strict=True)
        ]
        states = [Use(a.into, a.into, (Affine(),), Direction.INOUT) for a in allocs]
        starts = self._started(program, states)
        stages = (*starts, self._walked(program, wanted, states), *self._ended(program, wanted, states))
        comment = f"{loop.count} rounds of\n{self.comment}"
        view = KernelView(
            name, self.stage.loops, stages, tuple(self.views), tuple(allocs), frozenset(("kernel",)), comment
        )
        return in_place(self.round, program, self.stripe, close_kernel(view), self.views, self.inputs, self.outputs)

    def _outside(self, direction: Direction, wanted: str, value: str, program: Program) -> str:
        """Another buffer that the kernel sees: a value of the program."""
        type = program.types()[value]
        view = view_of(direction, claim(wanted, self.taken), TensorType.row_major(type.dtype, type.shape))
        self.views.append(view)
        (self.inputs if direction is Direction.IN else self.outputs).append((view.into, value))
        return view.into

    def _started(self, program: Program, states: list[Use]) -> list[Stage]:
        """Before the first round."""
        names = [
            self._outside(Direction.IN, f"{s.name}_start", v, program)
            for s, v in zip(states, self.round.loop.carries, strict=True)
        ]
        return [
            self._copied(f"{s.name}_start", replace(s, buffer=n, forms=self.cell), s)
            for n, s in zip(names, states, strict=True)
        ]

    def _ended(self, program: Program, wanted: Set[str], states: list[Use]) -> list[Stage]:
        """Behind the last round."""
        pairs = [(s, v) for s, v in zip(states, self.round.loop.results, strict=False) if v in wanted]
        names = [self._outside(Direction.OUT, f"{s.name}_end", v, program) for s, v in pairs]
        return [
            self._copied(f"{s.name}_end", s, replace(s, buffer=n, forms=self.cell))
            for n, (s, _) in zip(names, pairs, strict=True)
        ]

    def _copied(self, name: str, source: Use, target: Use) -> Stage:
        source, target = replace(source, name="from", dir=Direction.IN), replace(target, name="to", dir=Direction.OUT)
        return Stage.copy(name, (), source, target)

    # --- a round ------------------------------------------------------------------------------------------

    def _walked(self, program: Program, wanted: Set[str], states: list[Use]) -> Stage:
        """The rounds of an element, in order: what is carried is read before any of it is left."""
        loop = self.round.loop
        rounds = Index(claim("round", self.taken), loop.count, order=Order.ORDERED)
        number = Affine.var(rounds.name, -1) + (loop.count - 1) if loop.reverse else Affine.var(rounds.name)
        reads = self._reads(program, states, number)
        rows = self._stacked(program, wanted, number)
        body = (
            *self._computed(reads, states),
            *self._handed_on(states),
            *(Store(u.name, self._value(row)) for row, u in rows),
        )
        uses = {u.name: u for u in (*reads.values(), *(u for _, u in rows), *states)}
        loads, stores = ({s.src for s in body if isinstance(s, Load)}, {s.dst for s in body if isinstance(s, Store)})
        directed = (_directed(u, u.name in loads, u.name in stores) for u in uses.values())
        stage = replace(self.stage, name="rounds", loops=(rounds,), body=body)
        return replace(stage, uses=tuple(u for u in directed if u is not None))

    def _reads(self, program: Program, states: list[Use], number: Affine) -> dict[str, Use]:
        """What a round reads, by its own name for it, where that is in the kernel."""
        loop, inputs = self.round.loop, self.stripe.inputs
        homes = dict(zip(inputs, states, strict=False))
        rows = zip(inputs[len(states) :], loop.slices, strict=False)
        cut = {n: self._outside(Direction.IN, f"{n}_rows", value, program) for n, value in rows}
        return {
            u.name: homes.get(u.buffer)
            or (replace(u, buffer=cut[u.buffer], forms=(number, *u.forms)) if u.buffer in cut else u)
            for u in self.stage.uses
            if not u.writes
        }

    def _stacked(self, program: Program, wanted: Set[str], number: Affine) -> list[tuple[str, Use]]:
        """The stacks of which a round leaves a row, each with what that is."""
        kept = [
            (r, v)
            for r, v in zip(self.round.rows, self.round.loop.results[len(self.carried) :], strict=True)
            if v in wanted
        ]
        names = [self._outside(Direction.OUT, f"{self.left[row]}_rows", value, program) for row, value in kept]
        forms = {row: next(u.forms for u in self.stage.uses if u.buffer == self.left[row]) for row, _ in kept}
        return [(row, Use(n, n, (number, *forms[row]), Direction.OUT)) for n, (row, _) in zip(names, kept, strict=True)]

    def _computed(self, reads: Mapping[str, Use], states: list[Use]) -> Iterator[Statement]:
        """The round's statements up to what it leaves."""
        for k, source in enumerate(self.round.sources):
            if isinstance(source, int) and source != k:
                yield Load(f"$handed{k}", states[source].name)
        for s in self.stage.body:
            if not isinstance(s, Store):
                yield replace(s, src=reads[s.src].name) if isinstance(s, Load) else s

    def _handed_on(self, states: list[Use]) -> Iterator[Statement]:
        """What is carried on."""
        for k, source in enumerate(self.round.sources):
            if source != k:
                yield Store(states[k].name, f"$handed{k}" if isinstance(source, int) else self._value(source))

    def _value(self, left: str) -> str:
        """The scalar that the round's stage leaves there."""
        names = {u.name for u in self.stage.uses if u.buffer == self.left[left]}
        return next(s.src for s in self.stage.body if isinstance(s, Store) and s.dst in names)


def _directed(use: Use, reads: bool, writes: bool) -> Use | None:
    """The access as far as the stage makes use of it."""
    if reads and writes:
        return replace(use, dir=Direction.INOUT)
    return replace(use, dir=Direction.IN if reads else Direction.OUT) if reads or writes else None
