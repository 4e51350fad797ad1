"""The executor: runs a scheduled main block on the machine, with real bytes in its memories, and counts cycles.

A block on an execution unit is a kernel: its body runs on arrays over the memories' bytes by the Stripe
interpreter, which keeps it inside the placed buffers. A Transfer, or a block on a transfer unit, moves bytes.
Every other block is control: its iterations and statements are walked in order, and overlap in time as far as
hazards and units allow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, prod
from typing import Any

import numpy as np
import numpy.typing as npt
from tile_ir import numerics
from tile_ir.hardware import HardwareModel, Port, hardware_model
from tile_ir.kernels import BufferInfo, BufferKind, KernelList
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.interpret import run_block
from tile_ir.stripe.nodes import Block, Direction, Init, Location, Op, Refinement, Statement, Store, Transfer
from tile_ir.stripe.vectorize import Domain

from tile_sim.memory import Allocation, Box, Memory
from tile_sim.report import KernelReport, Report, make_report
from tile_sim.timeline import Operand, Timeline, refuse

Array = npt.NDArray[Any]
REGISTERS = ("REG", "LOCAL")
"""Memories inside a unit; kernels may allocate there."""


@dataclass(frozen=True, slots=True)
class View:
    """Part of an allocation: the cells [origin, origin + sizes) that exist."""

    ref: Refinement
    allocation: Allocation
    origin: tuple[int, ...]
    sizes: tuple[int, ...]
    copies: tuple[Allocation, ...] = ()
    """All copies of an allocation from which views choose."""

    @property
    def box(self) -> Box:
        """The cells inside the allocation."""
        if len(self.sizes) != len(self.allocation.sizes):
            return (0,) * len(self.allocation.sizes), self.allocation.sizes
        low = tuple(max(0, o) for o in self.origin)
        high = tuple(min(n, o + s) for n, o, s in zip(self.allocation.sizes, self.origin, self.sizes, strict=True))
        return low, tuple(max(0, h - b) for b, h in zip(low, high, strict=True))

    @property
    def nbytes(self) -> int:
        """Bytes of the cells that exist."""
        return prod(self.box[1]) * self.allocation.dtype.bytes

    @property
    def is_inside(self) -> bool:
        return self.box == (self.origin, self.sizes)

    def array(self) -> Array | None:
        whole = self.allocation.array()
        low, sizes = self.box
        return None if whole is None else whole[(*(slice(a, a + n) for a, n in zip(low, sizes, strict=True)), ...)]


def simulate(kernels: KernelList, inputs: Mapping[str, npt.ArrayLike] | None = None) -> tuple[dict[str, Array], Report]:
    """Run a kernel list whose one kernel is a scheduled program; gives outputs by name, and the report.

    Without `inputs` only time is simulated and there are no outputs. TileDeviceError (TILE-E720) for a schedule
    that the machine cannot run: no such unit or bus, a buffer outside its memory, bytes lost before they were read.
    """
    buffers: dict[str, Array] = {}
    constants = {c.name: c.data for c in kernels.constants}
    for info in kernels.buffers if inputs is not None else ():
        buffers[info.name] = _initial(info, inputs or {}, constants)
    report = Simulator(hardware_model(kernels.target.model)).run(
        [kernels.kernels[s.kernel].stripe for s in kernels.steps], buffers if inputs is not None else None
    )
    return {
        b.name: buffers[b.name] for b in kernels.buffers if b.kind is BufferKind.OUTPUT and inputs is not None
    }, report


def _initial(info: BufferInfo, inputs: Mapping[str, npt.ArrayLike], constants: Mapping[str, memoryview]) -> Array:
    if info.kind is BufferKind.CONST:
        return np.frombuffer(constants[info.name], info.dtype.numpy).reshape(info.shape).copy()
    if info.kind is BufferKind.INPUT:
        return np.ascontiguousarray(inputs[info.name], info.dtype.numpy).reshape(info.shape)
    return np.zeros(info.shape, info.dtype.numpy)


@dataclass
class Simulator:
    """A machine and what has happened on it."""

    model: HardwareModel
    timeline: Timeline = field(init=False)
    memories: dict[Port, Memory] = field(default_factory=dict[Port, Memory])
    kernels: list[KernelReport] = field(default_factory=list[KernelReport])
    turns: dict[tuple[int, Port], int] = field(default_factory=dict[tuple[int, Port], int])
    real: bool = True

    def __post_init__(self) -> None:
        self.timeline = Timeline(self.model)

    def run(self, mains: Sequence[Block], buffers: Mapping[str, Array] | None) -> Report:
        """Run main blocks one after another on users' buffers in DRAM, or only their time when there are none."""
        self.real = buffers is not None
        need = max((_arena(main) for main in mains), default=0)
        for name, unit in self.model.mem_units.items():
            for number in range(unit.count):
                size = need if name == "DRAM" else unit.bytes
                if size > unit.bytes:
                    raise refuse(f"temporaries take {size} bytes of {name}, which has {unit.bytes}")
                data = np.zeros(size, np.uint8) if self.real else None
                self.memories[name, number] = Memory((name, number), unit.bytes, data)
        for main in mains:
            self._main(main, buffers)
        return make_report(self.model, self.timeline, list(self.memories.values()), self.kernels)

    def _main(self, main: Block, buffers: Mapping[str, Array] | None) -> None:
        views: dict[str, View] = {}
        for ref in main.refs:
            if ref.dir is Direction.ALLOC:
                views[ref.into] = self._allocate(ref, {})
            else:
                views[ref.into] = self._user(ref, buffers)
        for statement in main.body:
            before, began = sum(self.timeline.ops.values()), self.timeline.end
            start, end = self._statement(statement, {}, views)
            ops = sum(self.timeline.ops.values()) - before
            name = statement.name if isinstance(statement, Block) else f"transfer({getattr(statement, 'src', '')})"
            span = (end - start) / self.model.clock_mhz
            self.kernels.append(KernelReport(name or f"statement at {began}", start, end, ops, span))
            for view in views.values():
                view.allocation.settle()

    def _user(self, ref: Refinement, buffers: Mapping[str, Array] | None) -> View:
        host = np.zeros(0) if buffers is None else buffers[ref.source].view()
        memory = self.memories["DRAM", 0]
        allocation = Allocation(ref.source, memory, 0, ref.type.dtype, ref.type.sizes, host=host)
        return View(ref, allocation, (0,) * len(ref.type.sizes), ref.type.sizes)

    # --- blocks --------------------------------------------------------------------------------------

    def _statement(self, statement: Statement, env: Mapping[str, int], views: Mapping[str, View]) -> tuple[int, int]:
        """Run a statement of a control block; gives its first and last cycle."""
        match statement:
            case Transfer(dst, src, unit):
                return self._transfer(views[dst], views[src], unit)
            case Block() if any(g.evaluate(env) < 0 for g in statement.guard):
                return self.timeline.end, 0
            case Block(loc=Location(unit=unit)) if unit in self.model.tx_units:
                return self._copy(statement, env, views, unit)
            case Block() if self._is_control(statement):
                return self._control(statement, env, views)
            case Block():
                return self._kernel(statement, env, views)
            case _:
                raise refuse(f"a {type(statement).__name__} stands outside the blocks that run on a unit")

    def _is_control(self, block: Block) -> bool:
        """True when the block holds transfers or local buffers of the chip, so that no single unit runs it."""
        if block.loc is None or block.loc.unit not in self.model.exec_units:
            return True
        stack = [block]
        while stack:
            block = stack.pop()
            if any(isinstance(s, Transfer) for s in block.body) or any(self._is_chip(r) for r in block.refs):
                return True
            stack += [s for s in block.body if isinstance(s, Block)]
        return False

    def _is_chip(self, ref: Refinement) -> bool:
        return ref.dir is Direction.ALLOC and ref.loc.unit in self.model.mem_units

    def _control(self, block: Block, env: Mapping[str, int], parents: Mapping[str, View]) -> tuple[int, int]:
        spans: list[tuple[int, int]] = []
        domain = Domain.of(block, env)
        for ref in block.refs:
            if ref.source and ref.init is Init.IDENTITY:
                spans += [self._fill(block, ref, point, parents) for point in domain.points()]
        if block.loc is None and not any(isinstance(s, Block | Transfer) for s in block.body):
            raise refuse(f"block {block.name!r} has no unit to run on", "locate_block gives blocks a unit")
        for point in domain.points():
            views = {r.into: self._refine(r, point, parents) for r in block.refs}
            spans += [self._statement(s, point, views) for s in block.body]
        spans = [s for s in spans if s[1]]
        return min((s[0] for s in spans), default=self.timeline.end), max((s[1] for s in spans), default=0)

    def _refine(self, ref: Refinement, point: Mapping[str, int], parents: Mapping[str, View]) -> View:
        if ref.dir is Direction.ALLOC:
            return self._allocate(ref, point)
        parent = parents[ref.source]
        access = [form.evaluate(point) for form in ref.access]
        if parent.copies and len(access) == len(parent.origin) + 1:
            parent = replace(parent, allocation=parent.copies[access.pop(0) % len(parent.copies)])
        if len(access) != len(parent.origin):
            return View(ref, parent.allocation, parent.origin, ref.type.sizes)
        return View(
            ref, parent.allocation, tuple(o + a for o, a in zip(parent.origin, access, strict=True)), ref.type.sizes
        )

    def _allocate(self, ref: Refinement, point: Mapping[str, int]) -> View:
        if ref.versions > 1 and not ref.loc.at and ref.loc.unit in self.model.mem_units:
            copies = tuple(self._copy_of(ref, number) for number in range(ref.versions))
            return View(ref, copies[0], (0,) * len(ref.type.sizes), ref.type.sizes, copies)
        port = self._port(ref.loc, point)
        if port not in self.memories:
            raise refuse(f"{ref.into} lies in {port[0]}[{port[1]}], which the machine does not have")
        turn = self.turns.get((id(ref), port), 0)
        self.turns[id(ref), port] = turn + 1
        size = prod(ref.type.sizes) * ref.type.dtype.bytes
        offset = ref.offset + (turn % ref.versions) * size
        allocation = Allocation(ref.into, self.memories[port], offset, ref.type.dtype, ref.type.sizes)
        return View(ref, allocation, (0,) * len(ref.type.sizes), ref.type.sizes)

    def _copy_of(self, ref: Refinement, number: int) -> Allocation:
        """Copies without a unit of their own go round those of the memory."""
        count = self.model.count(ref.loc.unit)
        memory = self.memories[ref.loc.unit, number % count]
        size = prod(ref.type.sizes) * ref.type.dtype.bytes
        return Allocation(ref.into, memory, ref.offset + number // count * size, ref.type.dtype, ref.type.sizes)

    def _port(self, loc: Location, point: Mapping[str, int]) -> Port:
        return loc.unit, loc.at[0].evaluate(point) if loc.at else 0

    # --- moving data ---------------------------------------------------------------------------------

    def _transfer(self, dst: View, src: View, unit: str) -> tuple[int, int]:
        if not (dst.is_inside and src.is_inside):
            raise refuse(f"a transfer from {src.ref.into} to {dst.ref.into} reaches outside a buffer")
        return self._moved(dst, src, unit, lambda: _assign(dst, src))

    def _moved(self, dst: View, src: View, unit: str, work: Any) -> tuple[int, int]:
        src.allocation.touch(writing=False)
        dst.allocation.touch(writing=True)
        if self.real:
            work()
        nbytes = min(dst.nbytes, src.nbytes)
        ready = max(src.allocation.ready(src.box, False), dst.allocation.ready(dst.box, True))
        end = self.timeline.transfer(src.allocation.memory.port, dst.allocation.memory.port, unit, nbytes, ready)
        src.allocation.done(src.box, False, end)
        dst.allocation.done(dst.box, True, end)
        return ready, end

    def _copy(self, block: Block, env: Mapping[str, int], parents: Mapping[str, View], unit: str) -> tuple[int, int]:
        """A block on a transfer unit: one load and one store, clipped by its constraints."""
        dst = [r for r in block.refs if r.dir is not Direction.IN]
        src = [r for r in block.refs if r.dir is Direction.IN]
        if len(dst) != 1 or len(src) != 1 or any(isinstance(s, Block | Op) for s in block.body):
            raise refuse(f"{unit} copies one buffer to another; block {block.name!r} does something else")
        return self._moved(parents[dst[0].source], parents[src[0].source], unit, lambda: self._run(block, env, parents))

    def _fill(
        self, block: Block, ref: Refinement, point: Mapping[str, int], parents: Mapping[str, View]
    ) -> tuple[int, int]:
        """Set a whole result to its identity: the transfer unit writes it."""
        assert ref.agg is not None
        view = self._refine(ref, point, parents)
        view.allocation.touch(writing=True)
        array = view.array()
        if self.real and array is not None:
            array[...] = numerics.identity(ref.agg, ref.type.dtype)
        unit = next(iter(self.model.tx_units), "")
        ready = view.allocation.ready(view.box, True)
        port = view.allocation.memory.port
        end = self.timeline.transfer(port, port, unit, view.nbytes, ready)
        view.allocation.done(view.box, True, end)
        return ready, end

    # --- kernels -------------------------------------------------------------------------------------

    def _kernel(self, block: Block, env: Mapping[str, int], parents: Mapping[str, View]) -> tuple[int, int]:
        assert block.loc is not None
        point = {i.name: i.value.evaluate(env) for i in block.indexes if i.value is not None}
        unit = self._port(block.loc, {**env, **point})
        if unit not in self.timeline.units:
            raise refuse(f"block {block.name!r} runs on {unit[0]}[{unit[1]}], which the machine does not have")
        _check_registers(block)
        seen = [(r, self._spread(block, r, env, parents)) for r in block.refs if r.source]
        self._touch(seen)
        if self.real:
            self._run(block, env, parents)
        ready = max((v.allocation.ready(v.box, r.dir is not Direction.IN) for r, v in seen), default=0)
        operands = [
            Operand(v.allocation.memory.port, v.nbytes, written)
            for r, v in seen
            for written in ((False,) if r.dir is Direction.IN else (True,))
        ]
        start, end = self.timeline.compute(unit, work(block), operands, ready)
        for ref, view in seen:
            view.allocation.done(view.box, ref.dir is not Direction.IN, end)
        return start, end

    def _touch(self, seen: Sequence[tuple[Refinement, View]]) -> None:
        for writing in (False, True):
            for ref, view in seen:
                if (ref.dir is Direction.OUT) is writing or (writing and ref.dir is Direction.INOUT):
                    view.allocation.touch(writing)

    def _spread(self, block: Block, ref: Refinement, env: Mapping[str, int], parents: Mapping[str, View]) -> View:
        """All that the block's iterations see of a buffer, clipped to the parent's view."""
        parent = parents[ref.source]
        if len(ref.access) != len(parent.origin) or any(not isinstance(f, Affine) for f in ref.access):
            return parent
        ranges = {i.name: (0, i.range - 1) for i in block.indexes if i.value is None}
        ranges |= {i.name: (v := i.value.evaluate(env), v) for i in block.indexes if i.value is not None}
        low: list[int] = []
        high: list[int] = []
        for form, size, origin, extent in zip(ref.access, ref.type.sizes, parent.origin, parent.sizes, strict=True):
            assert isinstance(form, Affine)
            first, last = form.bounds(ranges)
            low.append(origin + max(0, first))
            high.append(origin + min(extent, last + size))
        return View(ref, parent.allocation, tuple(low), tuple(max(0, h - b) for b, h in zip(low, high, strict=True)))

    def _run(self, block: Block, env: Mapping[str, int], parents: Mapping[str, View]) -> None:
        """The block's body on arrays over the memories' bytes."""
        indexes = tuple(
            replace(i, value=Affine((), i.value.evaluate(env))) if i.value is not None else i for i in block.indexes
        )
        refs: list[Refinement] = []
        arrays: dict[str, Array] = {}
        for ref in block.refs:
            if ref.source:
                parent = parents[ref.source]
                array = parent.allocation.array()
                assert array is not None
                arrays[ref.source] = array
                if len(ref.access) == len(parent.origin):
                    ref = replace(
                        ref, access=tuple(_shifted(f, o) for f, o in zip(ref.access, parent.origin, strict=True))
                    )
            refs.append(ref)
        run_block(replace(block, indexes=indexes, guard=(), loc=None, refs=tuple(refs)), arrays)


def _shifted(form: Any, by: int) -> Any:
    return form + by if isinstance(form, Affine) else replace(form, plus=form.plus + by)


def _assign(dst: View, src: View) -> None:
    to, from_ = dst.array(), src.array()
    assert to is not None and from_ is not None
    to[...] = from_


def _arena(main: Block) -> int:
    """Bytes of DRAM that the program's temporaries take."""
    stack, top = [main], 0
    while stack:
        block = stack.pop()
        for ref in block.refs:
            if ref.dir is Direction.ALLOC and ref.loc.unit == "DRAM":
                top = max(top, ref.offset + prod(ref.type.sizes) * ref.type.dtype.bytes * ref.versions)
        stack += [s for s in block.body if isinstance(s, Block)]
    return top


def _check_registers(block: Block) -> None:
    stack = [block]
    while stack:
        block = stack.pop()
        for ref in block.refs:
            if ref.dir is Direction.ALLOC and ref.loc.unit not in REGISTERS:
                raise refuse(
                    f"{ref.into} in block {block.name!r} lies in {ref.loc.unit}, where nothing was placed for it",
                    "locate_memory puts it into REG",
                )
        stack += [s for s in block.body if isinstance(s, Block)]


def work(block: Block) -> int:
    """Operations of a kernel: per point of its loops one per operation, a merge into a sum counts with its product.

    Points that constraints exclude count, and an instruction counts with the full sizes of its stencil: the unit
    spends the time all the same. A block that only moves data counts one per element stored.
    """
    total = 0
    stack: list[tuple[Block, int]] = [(block, 1)]
    while stack:
        block, outer = stack.pop()
        points = outer * _points(block)
        here = sum(isinstance(s, Op) for s in block.body) or int(any(isinstance(s, Store) for s in block.body))
        total += points * here
        stack += [(s, points) for s in block.body if isinstance(s, Block)]
    return total


def _points(block: Block) -> int:
    """Points of a block's index box, with the indexes that its instruction sizes rounded up to them."""
    sizes = {} if block.instr is None else dict(block.instr.sizes)
    total = 1
    for index in block.indexes:
        if index.value is None:
            size = sizes.get(index.name, 1)
            total *= ceil(index.range / size) * size if size > 0 else index.range
    return total
