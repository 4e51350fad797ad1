"""Instructions of one innermost body (straight-line code), counted by issue port, and its longest dependence chain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log2, prod

from tile_ir.dots import DOTS
from tile_ir.dtype import DType
from tile_ir.machine import Machine, Ports
from tile_ir.matrix import MATRIX_LOADS
from tile_ir.matrix.x86 import ROWS_OF_TILE, is_tile_step
from tile_ir.ops import ROUNDINGS, Aggregation
from tile_ir.stripe.affine import Quasi
from tile_ir.stripe.nodes import Bind, Const, Load, LoadIndex, Op, Reduce, Store, Transfer

from tile_opt.lowering.memory import widest_spread
from tile_opt.model import operations
from tile_opt.model.coalescing import PER_TURN, turns
from tile_opt.model.masks import constrained, masks_of
from tile_opt.model.operations import DIVISIONS, NARROW, NARROW_ALONE, instructions, latency, rounding, width
from tile_opt.model.scheduled import Access, Loop, Term, Tree

FREE = frozenset({"ident"})
_SHORTEST_DIVISION = 0.3
"""Of the time that a whole register takes."""
_EXACT = ROUNDINGS | {"max", "min", "neg", "abs", "fmod"}
"""Operations whose results are of the operands' dtype without rounding."""
ADDRESS = 2
"""Instructions that a graphics processor spends on the address of an access."""
ASKED = 4
"""Instructions of a condition on which a copy brings zeros."""
MANY_PLACES = 1 << 10
"""Instances of an access in straight-line code from which nobody looks for equal ones."""
SUBSCRIPT = 8
"""Scalar instructions that make an address of a subscript which only the run knows: it is widened, kept in range and multiplied."""
MASKED = 1
"""Further stores in whose time one is done that leaves lanes out."""
FORWARD = 5
"""Cycles from a store to a load of the same address, beyond the load's own."""


@dataclass(slots=True)
class Work:
    """Instructions by port, in units of what a port starts at once, and the time that results wait for each other."""

    fma: float = 0
    add: float = 0
    load: float = 0
    store: float = 0
    shuffle: float = 0
    issue: float = 0
    """Instructions of all kinds, however wide."""
    chain: float = 0
    """Cycles that must pass because each pass needs results of the one before."""
    depth: float = 0
    """Cycles from a pass's first instruction to its last, where passes do not wait for each other."""

    def plus(self, other: Work, times: float = 1) -> None:
        """Add `other`, done `times` times in a row."""
        self.fma += other.fma * times
        self.add += other.add * times
        self.load += other.load * times
        self.store += other.store * times
        self.shuffle += other.shuffle * times
        self.issue += other.issue * times
        self.chain += other.chain * times
        self.depth += other.depth * times

    def cycles(self, ports: Ports) -> dict[str, float]:
        """Cycles that each port, and the dependence, needs by itself."""
        return {
            "multiply": self.fma / ports.fma,
            "add": self.add / ports.add,
            "vector": (self.fma + self.add + self.shuffle) / ports.vector,
            "load": self.load / ports.load,
            "store": self.store / ports.store,
            "shuffle": self.shuffle / ports.shuffle,
            "issue": self.issue / ports.issue,
            "latency": self.chain,
        }


def straight_line(tree: Tree, machine: Machine) -> Work:
    """The work of one pass through the tree's own statements: all points of its unrolled and vector loops."""
    instr = tree.block.instr
    if instr is not None and is_tile_step(instr.name):
        return _on_tiles(instr.name, machine)
    if instr is not None and instr.name in MATRIX_LOADS:
        return _together(tree, machine)
    return _Counter(tree, machine).count()


def _on_tiles(name: str, machine: Machine) -> Work:
    """An instruction on tile registers; a move takes an access for each row."""
    match name:
        case "tile_load":
            return Work(load=ROWS_OF_TILE, issue=1)
        case "fetch_line" | "claim_line":
            return Work(load=1, issue=1)
        case "tile_zero":
            return Work(issue=1)
        case "tile_store":
            return Work(store=ROWS_OF_TILE, issue=1)
        case product:
            return Work(fma=machine.slots(product), issue=1)


def _together(tree: Tree, machine: Machine) -> Work:
    """What the lanes of a sub-group load together, in as few turns as its bytes take."""
    (access,) = (a for a in tree.accesses.values() if a.reads)
    bytes_ = access.dtype.bytes * prod(i.extent for i in tree.static)
    near = machine.local.latency if machine.local is not None else 0.0
    return Work(load=bytes_ / PER_TURN, issue=1 + ADDRESS, depth=near)


class _Counter:
    def __init__(self, tree: Tree, machine: Machine) -> None:
        self.tree, self.machine = tree, machine
        vector = machine.vector
        self.native = vector.native or vector.bytes
        self.wide = self.native if machine.is_gpu else vector.bytes
        self.vector = next((i for i in tree.static if i.bind is Bind.VECTOR and i.lanes > 1), None)
        self.joined, self.lanes = _joined(tree, self.vector, machine)
        self.masked = self.vector is not None and constrained(tree, self.vector)
        self.fragments = any(i.bind is Bind.LANE for i in tree.path)
        self.inner = next((i for i in reversed(tree.path) if i.bind is Bind.NONE and i.extent > 1), None)
        self.moves: dict[str, frozenset[str]] = {}
        self.ready: dict[str, float] = {}
        self.dtypes: dict[str, DType] = {}
        self.division: dict[str, str] = {}
        """By constant, what divides by it."""
        self.numbers: set[str] = set()
        """Constants: the larger of one and another value takes one instruction, for they are not NaN."""
        self.written = {a.buffer for a in tree.accesses.values() if a.writes}
        self.loaded: set[object] = set()
        self.work = Work()

    def count(self) -> Work:
        products = self._products()
        for statement in self.tree.block.body:
            match statement:
                case Load():
                    self._load(statement)
                case Store():
                    self._store(statement, statement.src in products)
                case Op():
                    self._op(statement, statement.dst in products)
                case Const(dst=dst, dtype=dtype, value=value):
                    self._define(dst, frozenset(), dtype, 0)
                    self.division[dst] = operations.division(value, dtype)
                    self.numbers.add(dst)
                case LoadIndex(dst=dst, dtype=dtype):
                    self._define(dst, frozenset(), dtype, 0)
                case Transfer() if self.machine.is_gpu:
                    self._transfer(statement)
                case Reduce(dst=dst, src=src):
                    self._define(dst, self.moves[src], self.dtypes[src], self.ready[src])
                case _:
                    pass
        if self.masked and not self.machine.is_gpu:
            self._masks()
        if self.inner is not None and self.inner.ordered:
            self._recurrence()
        return self.work

    def _masks(self) -> None:
        """What a loop moves goes to all lanes, and is added to what they differ by; the least of all conditions is compared."""
        forms, masks = masks_of(self.tree, self.vector) if self.vector is not None else (0, 0)
        self._compute("shuffle", forms + masks, self.lanes * DType.INT32.bytes)
        self._compute("add", 2 * forms, self.lanes * DType.INT32.bytes)

    def _define(self, name: str, moves: frozenset[str], dtype: DType, ready: float) -> None:
        """A value: the static loops that it moves with, its type, and the cycles after which it is there."""
        self.moves[name], self.dtypes[name], self.ready[name] = moves, dtype, ready
        self.work.depth = max(self.work.depth, ready)

    # how often, and how wide

    def _of(self, access: Access) -> frozenset[str]:
        return frozenset(i.name for i in self.tree.static if access.moved_by(i.name))

    def _instances(self, names: frozenset[str]) -> int:
        """Different values among the points of the static loops, a vector of lanes counting as one."""
        return prod(self._count(i) for i in self.tree.static if i.name in names)

    def _count(self, loop: Loop) -> int:
        if loop is self.joined and self.vector is not None:
            return -(-loop.extent * self.vector.extent // self.lanes)
        return -(-loop.extent // loop.lanes) if loop is self.vector else loop.extent

    def _is_vector(self, names: frozenset[str]) -> bool:
        return self.vector is not None and self.vector.name in names

    def _bytes(self, dtype: DType, names: frozenset[str]) -> int:
        """Bytes of one value that moves with `names`, as it is computed."""
        return width(dtype) * (self.lanes if self._is_vector(names) else 1)

    def _compute(self, port: str, times: float, bytes_: float) -> None:
        """Spend `times` operations on values of so many bytes."""
        self._spend(port, times * max(1.0, bytes_ / self.native))
        self.work.issue += times * max(1.0, bytes_ / self.wide)

    def _spend(self, port: str, slots: float) -> None:
        setattr(self.work, port, getattr(self.work, port) + slots)

    # statements

    def _subscripts(self, at: Sequence[Quasi | str]) -> frozenset[str]:
        """Static loops that move subscripts which only the run knows."""
        return frozenset[str]().union(*(self.moves[a] for a in at if isinstance(a, str)))

    def _load(self, load: Load) -> None:
        dst, access = load.dst, self.tree.accesses[load.src]
        names = self._of(access) | self._subscripts(load.at)
        self._define(dst, names, access.dtype, self._fetch(access))
        if self._again(access, load.at):
            return
        if not self.machine.is_gpu:
            known = [a for a in load.at if isinstance(a, str) and not self._is_vector(self.moves[a])]
            self.work.issue += SUBSCRIPT * len(known) * self._instances(self._subscripts(known))
        if access.buffer.in_registers:
            self._rearrange(access, names)
        else:
            self._move("load", access, names, self._places(access, names))
            self._widen(access, names)

    def _transfer(self, copy: Transfer) -> None:
        """A copy that nobody waits for at once: each instance is one access to a piece of neighbours, which asks whether it is there."""
        access, ref = self.tree.accesses[copy.src], next(r for r in self.tree.block.refs if r.into == copy.src)
        count = self._instances(self._of(access))
        self._spend("load", count * turns(access, prod(ref.type.sizes), self.tree, self.machine))
        self.work.issue += count * (1 + ASKED * len(copy.where)) + ADDRESS

    def _again(self, access: Access, at: Sequence[Quasi | str]) -> bool:
        """The same elements were loaded just before, through this view or another: they are still in registers."""
        place = (access.buffer, access.terms, access.offset, access.dtype, tuple(at))
        again = place in self.loaded and access.buffer not in self.written
        self.loaded.add(place)
        return again

    def _places(self, access: Access, names: frozenset[str]) -> int:
        """Different vectors that are loaded: windows that overlap load what they share once.

        An element for all lanes is an operand of each instruction that needs it.
        """
        whole = self._instances(names)
        if not self.machine.is_gpu and not self._is_vector(names):
            return whole
        moving = [(t, self._loop_of(t)) for t in access.terms]
        if any(loop is None and t.loops & names for t, loop in moving) or access.scattered or whole > MANY_PLACES:
            return whole
        found = {0}
        for term, loop in moving:
            if loop is not None:
                step = term.stride * (loop.lanes if loop is self.vector else 1)
                found = {at + step * k for at in found for k in range(self._count(loop))}
        return len(found)

    def _loop_of(self, term: Term) -> Loop | None:
        """The one static loop that moves a term."""
        return next((i for i in self.tree.static if term.loops == frozenset((i.name,))), None)

    def _widen(self, access: Access, names: frozenset[str]) -> None:
        if access.dtype in NARROW:
            each = NARROW if self.machine.is_gpu or self._is_vector(names) else NARROW_ALONE
            self._compute("shuffle", self._instances(names) * each[access.dtype], self._bytes(access.dtype, names))

    def _rearrange(self, access: Access, names: frozenset[str]) -> None:
        """Lanes that are gathered from, or scattered to, several registers."""
        if self._is_vector(names) and not self._side_by_side(access):
            stages = (self.lanes - 1).bit_length()
            self._compute("shuffle", self._instances(names) * stages, self._bytes(access.dtype, names))

    def _side_by_side(self, access: Access) -> bool:
        """Neighbouring lanes are neighbours in memory."""
        return (
            self.vector is not None
            and access.stride(self.vector.name) == access.dtype.bytes
        )  # fmt: skip

    def _filled(self, access: Access) -> bool:
        """Neighbouring lanes lie some steps apart, and straight-line code stores all that is between them: whole vectors."""
        if access in self.tree.filled:
            return True
        stride = access.stride(self.vector.name) if self.vector is not None else None
        steps, rest = divmod(stride or 0, access.dtype.bytes)
        between = (i for i in self.tree.static if i.bind is Bind.UNROLL and i.extent == steps)
        return not rest and steps > 1 and any(access.stride(i.name) == access.dtype.bytes for i in between)

    def _spread(self, access: Access) -> int:
        """Vectors of which shuffles make one, where neighbouring lanes load elements a few steps apart; 0 where they are further."""
        stride = access.stride(self.vector.name) if self.vector is not None else None
        steps, rest = divmod(stride or 0, access.dtype.bytes)
        unrolled = [i.extent for i in self.tree.static if i.bind is Bind.UNROLL]
        if rest or not 1 < steps <= widest_spread(self.lanes, access.dtype.bytes, unrolled == [steps]):
            return 0
        return -(-(steps * (self.lanes - 1) + 1) // self.lanes)

    def _sharing(self, access: Access) -> int:
        """Vectors of every so-many-th element that are made of the same loads: those of the neighbours in between."""
        steps = (access.stride(self.vector.name) or 0) // access.dtype.bytes if self.vector is not None else 1
        between = (i for i in self.tree.static if i.bind is Bind.UNROLL and access.stride(i.name) == access.dtype.bytes)
        return max((i.extent for i in between if i.extent <= steps), default=1)

    def _move(self, port: str, access: Access, names: frozenset[str], times: int = 0) -> None:
        """Fetch or store every value of the access, or so many; what crosses a line counts twice, lanes apart each on their own."""
        times = times or self._instances(names)
        if self.machine.is_gpu:
            self._by_sub_groups(access, names, times)
        elif not self._is_vector(names):
            self._spend(port, times)
            self.work.issue += times
        elif port == "load" and (parts := self._spread(access)):
            whole = max(1.0, self.lanes * access.dtype.bytes / self.native)
            loads = times * parts / self._sharing(access)
            self._spend(port, loads * whole * 2)  # few begin on a line
            self._compute("shuffle", times * parts, self.lanes * access.dtype.bytes)
            self.work.issue += loads
        elif self.vector is None or not (self._side_by_side(access) or (port == "store" and self._filled(access))):
            self._spend(port, times * self.lanes)
            self._compute("shuffle", times * self.lanes, self.lanes * access.dtype.bytes)
            self.work.issue += times * self.lanes
        else:
            bytes_ = self.lanes * access.dtype.bytes
            twice = 1 + crossing(access, self.vector, min(bytes_, self.native), self.machine) * self.machine.ports.split
            left_out = MASKED if self.masked and port == "store" else 0
            more = 0 if self.masked else self.lanes.bit_count() - 1
            self._spend(port, times * (twice * max(1.0, bytes_ / self.native) + left_out + more))
            self._compute("shuffle", times * more, self.native)
            self.work.issue += times * (max(1.0, bytes_ / self.machine.vector.bytes) + more)
            if not self._side_by_side(access):
                self._compute("shuffle", times, bytes_)

    def _by_sub_groups(self, access: Access, names: frozenset[str], times: int) -> None:
        """On a graphics processor: the turns that the lanes of a sub-group need, one path for loads and stores."""
        apart = self._is_vector(names) and not self._side_by_side(access)
        count = times * (self.lanes if apart else 1)
        lanes = self.lanes if self._is_vector(names) and not apart else 1
        self._spend("load", count * turns(access, lanes, self.tree, self.machine))
        self.work.issue += count + ADDRESS

    def _op(self, op: Op, fused: bool) -> None:
        names = frozenset[str]().union(*(self.moves[a] for a in op.args))
        ready = max((self.ready[a] for a in op.args), default=0.0)
        operand = self.dtypes[op.args[0]] if op.args else op.dtype
        if op.name in FREE or fused or (op.name == "cast" and operand is op.dtype):
            self._define(op.dst, names, op.dtype, ready)
            return
        dtype = op.dtype if width(op.dtype) >= width(operand) else operand
        times, bytes_ = self._instances(names), self._bytes(dtype, names)
        name, of_vectors = op.name, self._is_vector(names) and not self.machine.is_gpu
        if name == "div":
            name = self.division.get(op.args[1]) or operations.quotient(dtype, of_vectors)
        port, cost = instructions(name, dtype, self.machine, self.fragments)
        if name in ("max", "min") and not self.numbers.isdisjoint(op.args):
            cost = 1
        if name == "cast" and operand.is_float and op.dtype.is_integer:
            cost = self.machine.functions.saturate
        share = self._division(dtype, names, bytes_) if name in DIVISIONS else 0
        self._define(op.dst, names, op.dtype, ready + latency(port, cost, self.machine, share))
        times *= share or 1
        self._compute(port, times * cost, bytes_)
        self._compute("add", times * operations.beside(name, dtype, cost, self.machine), bytes_)
        fetched = times * operations.constants(name, dtype, cost, self.machine)
        self._spend("load", fetched)
        self.work.issue += fetched if bytes_ > width(dtype) else 0  # one value's are part of other instructions
        if op.dtype in NARROW and name not in _EXACT:
            self._compute("add", times * rounding(op.dtype, self.machine), bytes_)

    def _division(self, dtype: DType, names: frozenset[str], bytes_: float) -> float:
        """Floats: shorter vectors are divided sooner; integers one by one."""
        if dtype.is_float:
            return max(_SHORTEST_DIVISION, min(1.0, bytes_ / self.machine.vector.bytes))
        return self.lanes if self._is_vector(names) else 1

    def _store(self, store: Store, fused: bool) -> None:
        src, access = store.src, self.tree.accesses[store.dst]
        names = self._of(access) | self._subscripts(store.at)
        if access.agg is not None:
            self._merge(access, names, self.moves[src], fused)
        elif access.buffer.in_registers:
            self._rearrange(access, names)
        else:
            self._move("store", access, names)
            self._widen(access, names)

    def _merge(self, access: Access, target: frozenset[str], value: frozenset[str], fused: bool) -> None:
        """An aggregating store: its operations, the cell's way from memory and back, and the chain of updates."""
        names = target | value
        times, bytes_ = self._instances(names), self._bytes(access.dtype, names)
        across = log2(self.lanes) if self._is_vector(value) and not self._is_vector(target) else 0.0
        multiply = fused or access.agg is Aggregation.PROD
        each = self._merging(access)
        self._compute("fma" if multiply else "add", times * (1 + across) * each, bytes_)
        self._compute("shuffle", times * across, bytes_)
        if access.dtype in NARROW:
            self._compute("add", times * rounding(access.dtype, self.machine), bytes_)
        if not access.buffer.in_registers:
            self._move("load", access, target)
            self._move("store", access, target)
        latency = self.machine.ports.fma_latency if multiply else self._merged_after(access, each)
        self._chain(access, latency * times / self._instances(target), latency * 2 * across)

    def _merging(self, access: Access) -> float:
        """Instructions that merge two values; a maximum takes several where NaN must pass through."""
        extreme = access.agg in (Aggregation.MAX, Aggregation.MIN) and access.dtype.is_float
        return self.machine.functions.minmax if extreme else 1.0

    def _merged_after(self, access: Access, each: float) -> float:
        """Cycles until two values are merged that are not multiplied."""
        ports = self.machine.ports
        extreme = each > 1 and access.agg in (Aggregation.MAX, Aggregation.MIN)
        return ports.minmax_latency if extreme and ports.minmax_latency else ports.add_latency * (1 + each) / 2

    def _chain(self, access: Access, updates: float, across: float) -> None:
        """Cycles of the updates that a cell gets in one pass; the next pass goes on with it, or has cells of its own."""
        memory = 0.0 if access.buffer.in_registers else FORWARD + self._near()
        if self.inner is None or self.inner.name in access.buffer.around or access.moved_by(self.inner.name):
            self.work.depth = max(self.work.depth, updates + across + memory)
        else:
            self.work.chain = max(self.work.chain, updates + memory)

    def _near(self) -> float:
        return self.machine.caches[0].latency if self.machine.caches else 0.0

    def _fetch(self, access: Access) -> float:
        """Cycles until a loaded value is there, from the nearest place that may have it."""
        if access.buffer.in_registers:
            return 0.0
        if access.buffer.unit == "LOCAL" and self.machine.local is not None:
            return self.machine.local.latency
        return self._near()

    def _recurrence(self) -> None:
        """A loop in order that reads what it wrote: every operation on the way waits for the one before."""
        accesses = self.tree.accesses.values()
        kept = {a.buffer for a in accesses if a.writes and a.agg is None}
        again = [a for a in accesses if a.reads and a.buffer in kept]
        if not again:
            return
        ops = [s for s in self.tree.block.body if isinstance(s, Op) and s.name not in FREE]
        cycles = sum(latency(*instructions(o.name, o.dtype, self.machine), self.machine) for o in ops)
        if any(not a.buffer.in_registers for a in again):
            cycles += FORWARD + self._near()
        self.work.chain = max(self.work.chain, cycles)

    def _products(self) -> frozenset[str]:
        """Products that only a sum takes: one instruction with it."""
        body = self.tree.block.body
        used: dict[str, int] = {}
        for s in body:
            for name in _read_by(s):
                used[name] = used.get(name, 0) + 1
        made = {s.dst for s in body if isinstance(s, Op) and (s.name in DOTS or (s.name == "mul" and s.dtype.is_float))}
        sums = {s.src for s in body if isinstance(s, Store) and self.tree.accesses[s.dst].agg is Aggregation.SUM}
        return frozenset(n for n in made & sums if used[n] == 1)


def _joined(tree: Tree, vector: Loop | None, machine: Machine) -> tuple[Loop | None, int]:
    """A loop over rows shorter than vectors that are computed as whole ones (`tile_opt.semtree.side_by_side`), and the lanes of these.

    None, and those of the vectors that the block has, for others.
    """
    lanes = vector.lanes if vector else 1
    unrolled, accesses = [i for i in tree.static if i.bind is Bind.UNROLL], list(tree.accesses.values())
    plain = not any(a.agg is not None or a.buffer.in_registers or a.scattered for a in accesses)
    if vector is None or machine.is_gpu or len(unrolled) != 1 or not plain or constrained(tree, *tree.static):
        return None, lanes
    whole = machine.vector.bytes // max(a.dtype.bytes for a in accesses)
    (rows,) = unrolled
    written = [(a.dtype.bytes, a.stride(vector.name), a.stride(rows.name)) for a in accesses if a.writes]
    follow = all(step == width and apart == width * vector.extent for width, step, apart in written)
    return (rows, whole) if follow and vector.extent < whole <= rows.extent * vector.extent else (None, lanes)


def _read_by(statement: object) -> Sequence[str]:
    match statement:
        case Op(args=args):
            return args
        case Store(src=src):
            return (src, *(a for a in statement.at if isinstance(a, str)))
        case Load():
            return tuple(a for a in statement.at if isinstance(a, str))
        case Reduce(src=src):
            return (src,)
        case _:
            return ()


def crossing(access: Access, vector: Loop, bytes_: float, machine: Machine) -> float:
    """Share of accesses of so many bytes, neighbouring lanes of `vector` each, that touch two lines."""
    line = machine.caches[0].line if machine.caches else 64
    align = access.alignment(vector, line)
    if align >= bytes_:
        return 0.0
    return (bytes_ - max(align, access.dtype.bytes)) / line
