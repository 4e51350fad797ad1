"""The part of a stage that computes one box of its result: which boxes of arrays it reads, and its program.

A walk from the result back to the arrays finds, for every value on the way, the cells that are asked of it. Askers
whose cells lie together share one *instance* of the value; a matrix that is read by rows and by columns has two. The
walk costs microseconds and gives a key; only for a key that is new a program is made.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.names import claim
from tile_ir.program.liveness import defined_by
from tile_ir.program.nodes import Literal, Op, Param, Program, TensorType

from tile_opt.regions.boxes import Box
from tile_opt.regions.contraction import ContractionRule
from tile_opt.regions.rules import Cut, Emission, Rule, Source

NUMBER = TensorType(DType.INT32, ())
"""What tells boxes of one form apart."""
Site = tuple[int, int]
"""Which operand of which step."""


@dataclass(slots=True)
class _Instance:
    """A box of a value that is there as a whole, and who reads which part of it."""

    value: str
    box: Box
    readers: list[tuple[Site, Box]] = field(default_factory=list[tuple[Site, Box]])
    given: bool = False
    """It is no larger for what is read beyond it."""


@frozen
class _Step:
    """One operation for one box, as the walk met it."""

    number: int
    """Of the operation, in the stage's program."""
    instance: _Instance
    """What it computes."""
    cut: Cut


@frozen
class Region:
    """What computing a box takes."""

    key: Hashable
    """Equal where one program computes both."""
    reads: tuple[tuple[int, Box], ...]
    """(number of the array, box of it), in the order of the program's inputs."""
    numbers: tuple[int, ...]
    """The inputs that follow them: int32 scalars."""
    steps: tuple[_Step, ...]
    instances: tuple[_Instance, ...]


class Walks(Protocol):
    """Finds what computes a box of a result."""

    def region(self, box: Box) -> Region: ...

    def cells(self, region: Region) -> dict[int, int]: ...

    def program(self, region: Region, type: TensorType) -> Program: ...


class Walker:
    """Regions and programs of one stage."""

    def __init__(
        self, program: Program, rules: tuple[Rule, ...], split: Collection[str] = (), reduced: int = 0
    ) -> None:
        """`program` has one output; `rules` has one rule for each of its operations.

        Boxes begin with an axis for each of `reduced` indexes: the part of them that the values in `split` are reduced over.
        """
        self._program, self._rules, self._split, self._reduced = program, rules, frozenset(split), reduced
        self.inputs = tuple(p.name for p in program.inputs)
        """The arrays, as regions number them."""
        self.operations = len(rules)
        self._types = program.types()
        ((_, self._result),) = program.outputs
        self._results = [defined_by(op)[0] for op in program.ops]
        pairs = zip(self._results, rules, strict=True)
        self._copies = {name: rule for name, rule in pairs if isinstance(rule, ContractionRule)}

    @property
    def whole(self) -> dict[str, Box]:
        """All cells of every array."""
        return {p.name: Box.whole(p.type.shape) for p in self._program.inputs}

    def region(self, box: Box, frames: Mapping[str, Box] = MappingProxyType({})) -> Region:
        """What computes `box`, behind the part of the reduced indexes, of the result.

        Of arrays in `frames` this much is there: cells that read beyond it get any number.
        """
        part, own = box.parted(self._reduced)
        asked: dict[str, list[_Instance]] = {self._result: [_Instance(self._result, own)]}
        asked |= {name: [_Instance(name, frame, given=True)] for name, frame in frames.items()}
        steps: list[_Step] = []
        for number in range(len(self._rules) - 1, -1, -1):
            for instance in asked.get(self._results[number], ()):
                self._ask(number, instance, part, steps, asked)
        order = {id(i): n for n, i in enumerate(i for group in asked.values() for i in group)}
        reads = tuple((n, i) for n, p in enumerate(self._program.inputs) for i in asked.get(p.name, ()))
        return Region(
            _key(steps, asked, order),
            tuple([(n, i.box) for n, i in reads]),
            tuple([n for step in steps for n in step.cut.numbers]),
            tuple(steps),
            tuple([i for group in asked.values() for i in group]),
        )

    def _ask(
        self, number: int, instance: _Instance, part: Box, steps: list[_Step], asked: dict[str, list[_Instance]]
    ) -> None:
        rule = self._rules[number]
        box = part.beside(instance.box) if instance.value in self._split else instance.box
        cut = rule.cut(box) if box.size else Cut(None, (None,) * len(rule.operands))
        site = len(steps)
        steps.append(_Step(number, instance, cut))
        for operand, (name, box) in enumerate(zip(rule.operands, cut.reads, strict=True)):
            if box is not None:
                held, cells = self._held(name, box)
                _join(asked.setdefault(held, []), held, cells, (site, operand))

    def _held(self, value: str, box: Box) -> tuple[str, Box]:
        """The value, and the box of it, that a box is an exact copy of: itself where it is none."""
        while value in self._copies and (source := self._copies[value].copied(box)) is not None:
            value, box = source
        return value, box

    def cells(self, region: Region) -> dict[int, int]:
        """Cells that a region computes of the result of each operation, by its number."""
        found: dict[int, int] = {}
        for step in region.steps:
            found[step.number] = found.get(step.number, 0) + step.instance.box.size
        return found

    def program(self, region: Region, type: TensorType) -> Program:
        """The program of a region: its inputs are the boxes read and the numbers, its output has `type`."""
        names = _Names(region.instances)
        inputs = [Param(names.of(i), self._type(i)) for i in self._arrays(region)]
        numbers = [names.new("at") for _ in region.numbers]
        ops = self._ops(region, names, numbers, type)
        given = (*inputs, *(Param(n, NUMBER) for n in numbers))
        return Program(self._program.name, given, ops, (("R", names.of(region.instances[0])),))

    def _arrays(self, region: Region) -> list[_Instance]:
        return [i for p in self._program.inputs for i in region.instances if i.value == p.name]

    def _type(self, instance: _Instance) -> TensorType:
        return TensorType(self._types[instance.value].dtype, instance.box.shape)

    def _sources(self, region: Region, names: _Names) -> dict[Site, Source]:
        """What each operand of each step reads."""
        found: dict[Site, Source] = {}
        for instance in region.instances:
            for site, box in instance.readers:
                at = box.relative(instance.box.low).low
                found[site] = Source(names.of(instance), self._type(instance), at, box.shape)
        return found

    def _ops(self, region: Region, names: _Names, numbers: list[str], type: TensorType) -> tuple[Op, ...]:
        sources = self._sources(region, names)
        waiting = iter(numbers)
        made: list[list[Op]] = []
        for site, step in enumerate(region.steps):
            rule = self._rules[step.number]
            mine = [next(waiting) for _ in step.cut.numbers]
            read = [sources.get((site, n)) for n in range(len(rule.operands))]
            result = type if site == 0 else self._type(step.instance)
            origin = self._program.ops[step.number].origin
            out = Emission(step.cut.form, names.of(step.instance), result, read, mine, names.new, origin)
            if result.size:
                rule.emit(out)
            else:
                out.fill(out.name, Literal(0, result.dtype))
            made.append(out.ops)
        return tuple(op for ops in reversed(made) for op in ops)


class _Names:
    """Names of the values of a region's program."""

    def __init__(self, instances: tuple[_Instance, ...]) -> None:
        self._taken: set[str] = set()
        self._given = {id(i): claim(i.value, self._taken) for i in instances}

    def of(self, instance: _Instance) -> str:
        return self._given[id(instance)]

    def new(self, wanted: str) -> str:
        return claim(wanted, self._taken)


def _join(group: list[_Instance], value: str, box: Box, site: Site) -> None:
    """Read `box` from an instance that it lies beside or in, or from one of its own."""
    for instance in group:
        hull = instance.box.hull(box)
        if instance.given or hull.size <= instance.box.size + box.size:
            instance.box = instance.box if instance.given else hull
            instance.readers.append((site, box))
            return
    group.append(_Instance(value, box, [(site, box)]))


def _key(
    steps: list[_Step],
    asked: Mapping[str, list[_Instance]],
    order: Mapping[int, int],
) -> Hashable:
    """The forms of all steps, and how what they read lies in what is there."""
    forms = tuple([(s.number, s.instance.box.shape, s.cut.form) for s in steps])
    lying = tuple([
        (site, order[id(i)], i.box.shape, box.relative(i.box.low))
        for group in asked.values()
        for i in group
        for site, box in i.readers
    ])  # fmt: skip
    return (forms, lying)
