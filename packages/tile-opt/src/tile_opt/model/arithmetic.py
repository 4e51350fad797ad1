"""Instructions of a leaf's straight-line code, by the port that starts them, and its longest dependence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from math import log2, prod

from tile_ir.dtype import DType, Kind
from tile_ir.machine import Functions, Machine, Ports
from tile_ir.ops import Aggregation
from tile_ir.stripe.nodes import Bind, Const, Load, LoadIndex, Op, Reduce, Store

from tile_opt.model.scheduled import Access, Loop, Tree

FREE = frozenset({"ident"})
_FUNCTION: Mapping[str, str] = {
    "div": "div", "recip": "div", "sqrt": "sqrt", "exp": "exp", "log": "log", "tanh": "tanh", "pow": "pow",
    **dict.fromkeys(("sin", "cos", "tan"), "trigonometric"),
    **dict.fromkeys(("asin", "acos", "atan", "sinh", "cosh"), "inverse"),
}  # fmt: skip
_DOUBLE = 1.6
"""A float64 polynomial is longer by so much than one of float32."""
_INTEGER_DIVISION = 12
"""Instructions for each element: there is none for vectors."""
_INTEGER_PRODUCT = 2
_NARROW: Mapping[DType, float] = {DType.FLOAT16: 1, DType.BFLOAT16: 2}
"""Instructions that widen a vector of 16-bit floats, or that store one."""
_ROUNDING: Mapping[DType, float] = {DType.FLOAT16: 2, DType.BFLOAT16: 6}
"""Instructions that round a result to 16 bits."""
FORWARD = 5
"""Cycles from a store to a load of the same address, beyond the load's own."""
LOOP = 2
"""Scalar instructions that keep a loop going."""


@dataclass(slots=True)
class Work:
    """Instructions by port, and `chain`: cycles that must pass because each result waits for one before it."""

    fma: float = 0
    add: float = 0
    load: float = 0
    store: float = 0
    shuffle: float = 0
    scalar: float = 0
    chain: float = 0

    def plus(self, other: Work, times: float = 1) -> None:
        """Add `other`, done `times` times in a row."""
        self.fma += other.fma * times
        self.add += other.add * times
        self.load += other.load * times
        self.store += other.store * times
        self.shuffle += other.shuffle * times
        self.scalar += other.scalar * times
        self.chain += other.chain * times

    @property
    def total(self) -> float:
        """Instructions of all kinds."""
        return sum(astuple(self)) - self.chain

    def cycles(self, ports: Ports) -> dict[str, float]:
        """Cycles that each port, and the dependence, needs by itself."""
        return {
            "multiply": self.fma / ports.fma,
            "add": self.add / ports.add,
            "vector": (self.fma + self.add + self.shuffle) / ports.vector,
            "load": self.load / ports.load,
            "store": self.store / ports.store,
            "shuffle": self.shuffle / ports.shuffle,
            "issue": self.total / ports.issue,
            "latency": self.chain,
        }


def straight_line(tree: Tree, machine: Machine) -> Work:
    """The work of one pass through the tree's own statements: all points of its unrolled and vector loops."""
    return _Counter(tree, machine).count()


class _Counter:
    def __init__(self, tree: Tree, machine: Machine) -> None:
        self.tree, self.machine = tree, machine
        self.native = machine.vector.native or machine.vector.bytes
        self.static = tree.static
        self.vector = next((i for i in tree.static if i.bind is Bind.VECTOR and i.lanes > 1), None)
        self.inner = tree.serial[-1] if tree.serial else None
        self.moves: dict[str, frozenset[str]] = {}
        self.dtypes: dict[str, DType] = {}
        self.work = Work()

    def count(self) -> Work:
        body = self.tree.block.body
        products = self._products()
        for statement in body:
            match statement:
                case Load(dst=dst, src=src):
                    self._load(dst, self.tree.accesses[src])
                case Store(dst=dst, src=src):
                    self._store(self.tree.accesses[dst], src, src in products)
                case Op():
                    self._op(statement, statement.dst in products)
                case Const(dst=dst, dtype=dtype) | LoadIndex(dst=dst, dtype=dtype):
                    self.moves[dst], self.dtypes[dst] = frozenset(), dtype
                case Reduce(dst=dst, src=src):
                    self.moves[dst], self.dtypes[dst] = self.moves[src], self.dtypes[src]
                case _:
                    pass
        if self.inner is not None:
            self.work.scalar += LOOP
            if self.inner.ordered:
                self._recurrence()
        return self.work

    # how often, and how wide

    def _of(self, access: Access) -> frozenset[str]:
        return frozenset(i.name for i in self.static if access.moved_by(i.name))

    def _instances(self, names: frozenset[str]) -> int:
        """Different values among the points of the static loops, a vector of lanes counting as one."""
        return prod(self._count(i) for i in self.static if i.name in names)

    def _count(self, loop: Loop) -> int:
        return -(-loop.extent // loop.lanes) if loop is self.vector else loop.extent

    def _is_vector(self, names: frozenset[str]) -> bool:
        return self.vector is not None and self.vector.name in names

    def _registers(self, dtype: DType, names: frozenset[str], width: int) -> float:
        """Registers of `width` bytes that a value fills."""
        if self.vector is None or self.vector.name not in names:
            return 1
        return max(1.0, self.vector.lanes * _width(dtype) / width)

    # statements

    def _load(self, dst: str, access: Access) -> None:
        names = self._of(access)
        self.moves[dst], self.dtypes[dst] = names, access.dtype
        if not access.buffer.in_registers:
            self.work.load += self._instances(names) * self._memory(access, names)
            self._widen(access, names)
        elif self._is_vector(names) and self._lane_stride(access) != 1:
            self.work.shuffle += self._instances(names) * log2(self._lanes)

    def _widen(self, access: Access, names: frozenset[str]) -> None:
        if access.dtype in _NARROW:
            registers = self._registers(access.dtype, names, self.native)
            self.work.shuffle += self._instances(names) * registers * _NARROW[access.dtype]

    @property
    def _lanes(self) -> int:
        return self.vector.lanes if self.vector else 1

    def _lane_stride(self, access: Access) -> float:
        """Elements between neighbouring lanes; a fraction where they differ."""
        assert self.vector is not None
        stride = access.stride(self.vector.name)
        return 0.5 if stride is None or access.scattered else stride / access.dtype.bytes

    def _memory(self, access: Access, names: frozenset[str]) -> float:
        """Instructions that fetch, or store, one value; those that cross a line count twice."""
        if not self._is_vector(names):
            return 1
        if self._lane_stride(access) != 1:
            self.work.shuffle += self._instances(names) * self._lanes
            return self._lanes
        assert self.vector is not None
        bytes_ = self._lanes * access.dtype.bytes
        wide = min(bytes_, self.machine.vector.bytes)
        return max(1.0, bytes_ / self.machine.vector.bytes) * (1 + crossing(access, self.vector, wide, self.machine))

    def _op(self, op: Op, fused: bool) -> None:
        names = frozenset[str]().union(*(self.moves[a] for a in op.args))
        self.moves[op.dst], self.dtypes[op.dst] = names, op.dtype
        if op.name in FREE or fused:
            return
        operand = self.dtypes[op.args[0]] if op.args else op.dtype
        wide = op.dtype if _width(op.dtype) >= _width(operand) else operand
        times = self._instances(names) * self._registers(wide, names, self.native)
        multiply, cost = _cost(op.name, wide, self.machine.functions)
        if op.name in ("div", "recip") and not wide.is_float:
            cost *= self._lanes if self._is_vector(names) else 1
        if multiply:
            self.work.fma += times * cost
        else:
            self.work.add += times * cost
        self.work.add += times * _ROUNDING.get(op.dtype, 0)

    def _store(self, access: Access, src: str, fused: bool) -> None:
        names = self._of(access)
        if access.agg is not None:
            self._merge(access, names, self.moves[src], fused)
        elif not access.buffer.in_registers:
            self.work.store += self._instances(names) * self._memory(access, names)
            self._widen(access, names)
        elif self._is_vector(names) and self._lane_stride(access) != 1:
            self.work.shuffle += self._instances(names) * self._lanes

    def _merge(self, access: Access, target: frozenset[str], value: frozenset[str], fused: bool) -> None:
        """An aggregating store: by port, in memory where the cell is there, and its chain of dependent updates."""
        names = target | value
        across = self._is_vector(value) and not self._is_vector(target)
        times = self._instances(names) * self._registers(access.dtype, names, self.native)
        steps = log2(self._lanes) if across else 0.0
        multiply = fused or access.agg is Aggregation.PROD
        self._count_merge(times * (1 + steps), multiply)
        self.work.shuffle += times * steps
        self.work.add += times * _ROUNDING.get(access.dtype, 0)
        latency = self.machine.ports.fma_latency if multiply else self.machine.ports.add_latency
        in_memory = not access.buffer.in_registers
        if in_memory:
            each = self._memory(access, target)
            self.work.load += self._instances(target) * each
            self.work.store += self._instances(target) * each
        self._chain(access, latency, steps, self._instances(names) / self._instances(target), in_memory)

    def _count_merge(self, times: float, multiply: bool) -> None:
        if multiply:
            self.work.fma += times
        else:
            self.work.add += times

    def _chain(self, access: Access, latency: float, steps: float, updates: float, in_memory: bool) -> None:
        """Each pass updates a cell `updates` times; the next pass too, unless the innermost loop moves on to others."""
        again = self.inner is None or not access.moved_by(self.inner.name)
        if not again and updates <= 1:
            return
        through = FORWARD + self.machine.caches[0].latency if in_memory and self.machine.caches else 0.0
        self.work.chain = max(self.work.chain, updates * latency + through)
        if steps:  # lanes are combined beside the chain, but the last result waits for them
            self.work.chain = max(self.work.chain, updates * latency)

    def _recurrence(self) -> None:
        """A loop in order that reads what it wrote: every operation on the way waits for the one before."""
        kept = {a.buffer for a in self.tree.accesses.values() if a.writes and a.agg is None}
        again = [a for a in self.tree.accesses.values() if a.reads and a.buffer in kept]
        if not again:
            return
        ports = self.machine.ports
        ops = [s for s in self.tree.block.body if isinstance(s, Op) and s.name not in FREE]
        latency = sum(ports.add_latency * max(1.0, _cost(o.name, o.dtype, self.machine.functions)[1]) for o in ops)
        if any(not a.buffer.in_registers for a in again):
            latency += FORWARD + (self.machine.caches[0].latency if self.machine.caches else 0)
        self.work.chain = max(self.work.chain, latency)

    def _products(self) -> frozenset[str]:
        """Products that only a sum takes: one instruction with it."""
        body = self.tree.block.body
        used: dict[str, int] = {}
        for s in body:
            for name in _read_by(s):
                used[name] = used.get(name, 0) + 1
        made = {s.dst for s in body if isinstance(s, Op) and s.name == "mul" and s.dtype.is_float}
        sums = {
            s.src for s in body if isinstance(s, Store) and self.tree.accesses[s.dst].agg is Aggregation.SUM
        }  # fmt: skip
        return frozenset(n for n in made & sums if used[n] == 1)


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


def _width(dtype: DType) -> int:
    """Bytes in which a value is computed."""
    return 4 if dtype in _NARROW or dtype.kind is Kind.BOOL else dtype.bytes


def _cost(name: str, dtype: DType, functions: Functions) -> tuple[bool, float]:
    """(by the multiply port, instructions of one vector)."""
    if name == "mul":
        return True, 1 if dtype.is_float else _INTEGER_PRODUCT
    field = _FUNCTION.get(name)
    if field is None:
        return False, 1
    if not dtype.is_float:
        return True, _INTEGER_DIVISION
    return True, getattr(functions, field) * (_DOUBLE if dtype is DType.FLOAT64 else 1)


def crossing(access: Access, vector: Loop, bytes_: float, machine: Machine) -> float:
    """Share of accesses of so many bytes, neighbouring lanes of `vector` each, that touch two lines."""
    line = machine.caches[0].line if machine.caches else 64
    strides = [t.stride * (vector.lanes if vector.name in t.loops else 1) for t in access.terms]
    align = min((_power(v) for v in (*strides, access.offset) if v % line), default=line)
    if align >= bytes_:
        return 0.0
    return (bytes_ - max(align, access.dtype.bytes)) / line


def _power(value: int) -> int:
    """The largest power of two that divides a number."""
    return value & -value
