"""A machine as numbers: every constant that the cost model uses, typed, with its unit.

One description serves processors and graphics processors. A *core* is a processor's core or a multiprocessor; a *vector*
is a vector register or the registers of a sub-group. Times inside a core are in cycles of `clock_ghz`, those of memory
and of launches in seconds. Backends ship documents, fill in what the system tells, and `tile calibrate` measures the rest;
a number that is off costs accuracy, never correctness.
"""

from __future__ import annotations

from math import inf, log
from typing import ClassVar

from tile_ir.frozen import frozen

SLOW = 1e-3
"""The least of what times are divided by."""


@frozen
class Cache:
    """One level of cache, data or unified."""

    LEAST: ClassVar = {"bytes": 1, "ways": 1, "line": 1, "bandwidth": SLOW, "shared": 1, "loses": SLOW}

    level: int
    bytes: int
    ways: int = 8
    line: int = 64
    """Bytes of a line."""
    sector: int = 0
    """Bytes that are fetched at least; 0 = a whole line."""
    latency: float = 4
    """Cycles from a load to its use when this level has the line."""
    bandwidth: float = 64
    """Bytes per cycle that one core reads from this level, in sequence."""
    write: float = 0
    """Bytes per cycle that one core writes to this level; 0 = as it reads."""
    duplex: float = 2**0.5
    """How long a line that comes and one that goes take together, in times of one: 1 where each has a way of its own, 2 where
    they take turns."""
    shared: int = 1
    """Cores that share it."""
    merged: float = 0
    """Share of what cores ask of it for lines that others ask for at about the same time, that is answered together."""
    collision: float = 5
    """Cycles that one of its lines takes for each value that items merge into it, where others do so at the same time."""
    straddle: float = 0
    """Cycles that a store waits which begins in one of its lines and ends in the next, where nothing fetched them ahead."""
    keeps: float = 0.6
    """Share of its size up to which all that is touched again and again stays; less where others use the level, too."""
    loses: float = 1.4
    """Times its size from which a walk in a circle finds nothing again; more where the level is larger than it is taken for."""

    def together(self, coming: float, going: float) -> float:
        """The time of lines that come and lines that go, which hinder each other: `duplex` times as long as one where both are as long."""
        longer, shorter = max(coming, going), min(coming, going)
        power = log(2) / log(self.duplex) if self.duplex > 1 else inf
        return longer * (1 + (shorter / longer) ** power) ** (1 / power) if longer else 0.0


@frozen
class Tlb:
    """One level of page translations."""

    LEAST: ClassVar = {"entries": 1}

    entries: int
    latency: float = 7
    """Cycles that a page not found here costs beyond a hit."""


@frozen
class Pages:
    """Pages of memory and what translates them, nearest first."""

    LEAST: ClassVar = {"bytes": 1, "huge_bytes": 1}

    bytes: int = 4096
    huge_from: int = 0
    """Bytes from which a buffer usually lies on huge pages; 0 = never."""
    huge_bytes: int = 2 << 20
    tlbs: tuple[Tlb, ...] = ()


@frozen
class Ports:
    """Vector instructions that a core starts per cycle, by kind, and the cycles until a result can be used."""

    LEAST: ClassVar = dict.fromkeys(
        ("fma", "add", "vector", "load", "store", "split", "shuffle", "issue", "exposed"), SLOW
    )
    fma: float = 2
    """Multiplications, fused multiply-adds and polynomial steps."""
    add: float = 2
    """Additions, comparisons, minima, conversions."""
    vector: float = 3
    """Of the two kinds above and permutations together."""
    load: float = 2
    store: float = 1
    split: float = 1
    """Further accesses in whose time one is done that touches two lines."""
    shuffle: float = 1
    """Permutations across lanes; an element fetched or stored on its own costs one as well."""
    issue: float = 4
    """Instructions of all kinds, scalar ones (addresses, loop control) included."""
    fma_latency: float = 4
    add_latency: float = 4
    minmax_latency: float = 0
    """Cycles until the larger or smaller of two floats is there; 0 = half of `Functions.minmax` instructions beside one addition's."""
    exposed: float = 0.26
    """What the shorter of two equal demands, such as arithmetic and a cache's traffic, adds although they overlap."""
    exposed_kept: float = 0
    """The same of arithmetic that keeps its results in registers from one iteration to the next; 0 = `exposed`."""
    window: int = 320
    """Instructions among which independent ones are found; 0 where they run in order."""
    mispredict: float = 15
    """Cycles lost where a loop ends unexpectedly."""


@frozen
class VectorUnit:
    """Registers that one thread, or one work item, computes in."""

    LEAST: ClassVar = {"registers": 2, "bytes": 1}
    registers: int = 16
    bytes: int = 16
    """Bytes of one register; of a work item's widest access on a graphics processor."""
    native: int = 0
    """Bytes that the `Ports` count as one instruction; 0 = one register."""


@frozen
class Bandwidths:
    """Bytes per nanosecond (GB/s) between the last cache and memory."""

    LEAST: ClassVar = dict.fromkeys(("read", "write", "non_temporal"), SLOW)

    read: float = 15
    write: float = 10
    """With the read of each line before it is written, as plain stores do; counted in bytes written."""
    non_temporal: float = 15
    """Of stores that pass the caches by."""


@frozen
class Memory:
    """Device memory."""

    latency: float = 100
    """Nanoseconds of a load that no cache has."""
    one_core: Bandwidths = Bandwidths()
    all_cores: Bandwidths = Bandwidths()
    outstanding: int = 16
    """Lines that one core can wait for at once."""


@frozen
class LocalMemory:
    """Memory that the items of a group share."""

    LEAST: ClassVar = {"banks": 1, "bank_bytes": 1}

    bytes: int = 48 << 10
    """Of one core, shared by the groups that reside there."""
    banks: int = 32
    bank_bytes: int = 4
    """Bytes that a bank delivers per cycle."""
    latency: float = 30


@frozen
class Occupancy:
    """What bounds the groups that reside on one core (multiprocessor) at once."""

    LEAST: ClassVar = dict.fromkeys(("subgroup", "registers", "item_registers", "items", "groups", "slots"), 1)

    subgroup: int = 32
    """Items that execute one instruction together."""
    registers: int = 65536
    """32-bit registers of a core."""
    item_registers: int = 255
    """32-bit registers that one item may use before it spills."""
    items: int = 2048
    group_items: int = 0
    """Items of the largest group that the device runs; 0 where that is what the settings say."""
    groups: int = 32
    slots: int = 4
    """Sub-groups that issue an instruction in the same cycle."""


@frozen
class Launch:
    """Seconds that do not depend on the work."""

    kernel: float = 1e-6
    """Start and end of one kernel."""
    handoff: float = 2e-6
    """Waking the other cores and meeting again; only for kernels of more than one group."""
    group: float = 1e-7
    """One work group's start."""
    barrier: float = 30
    """Cycles of a barrier within a group."""
    arrival: float = 1.2e-6
    """Counting the groups of a kernel, and what the last one waits for until it sees what all others have stored."""
    fill: float = 0
    """Until the first instructions and operands of a kernel are there, and after its last results have left: nothing runs beside it."""


@frozen
class Functions:
    """Instructions of the multiply port that one elementary function of a vector of float32 takes."""

    div: float = 9
    sqrt: float = 11
    exp: float = 14
    log: float = 20
    tanh: float = 16
    trigonometric: float = 34
    """sin, cos and tan."""
    inverse: float = 18
    """asin, acos, atan, atan2, sinh and cosh."""
    inverse_hyperbolic: float = 42
    """asinh, acosh and atanh."""
    erf: float = 34
    erfc: float = 44
    remainder: float = 44
    """fmod."""
    pow: float = 120
    approximate: float = 0
    """Instructions of the shuffle port for exp and reciprocals, of float32 beside products whose factors are rounded and of 16-bit
    floats; 0 where these functions are computed as everywhere."""
    minmax: float = 3
    """The larger or smaller of two floats, NaN if either is."""
    sign: float = 1
    """The magnitude of a float, or its opposite; 0 where that is part of the instruction that takes it."""
    others: float = 0.85
    """Comparisons, conversions and shuffles for each of these instructions, division and roots apart: work of the add port."""
    saturate: float = 6
    """Instructions of the add port that turn a float into an integer, NaN and what is beyond its range told apart."""
    bfloat: float = 6
    """Instructions of the add port that round a float to bfloat16."""
    double: float = 8
    """How many times as many pow and fmod take for a vector of float64."""
    long: float = 8
    """The same for the other functions, division and roots apart."""


@frozen
class InstructionRate:
    """A matrix instruction or dot product by its name, and how many a core starts per cycle."""

    name: str
    rate: float


@frozen
class Machine:
    """See the module's text. Only a graphics processor has an `occupancy`."""

    LEAST: ClassVar = {"clock_ghz": SLOW, "cores": 1}

    clock_ghz: float = 3.0
    cores: int = 1
    vector: VectorUnit = VectorUnit()
    ports: Ports = Ports()
    caches: tuple[Cache, ...] = (
        Cache(1, 32 << 10),
        Cache(2, 1 << 20, latency=14, bandwidth=32, duplex=2),
        Cache(3, 16 << 20, 16, latency=50, bandwidth=16),
    )
    """Nearest first."""
    pages: Pages = Pages()
    memory: Memory = Memory()
    local: LocalMemory | None = None
    occupancy: Occupancy | None = None
    launch: Launch = Launch()
    functions: Functions = Functions()
    instructions: tuple[InstructionRate, ...] = ()

    @property
    def subgroup(self) -> int:
        """Items that execute one instruction together; 1 on a processor."""
        return self.occupancy.subgroup if self.occupancy else 1

    @property
    def is_gpu(self) -> bool:
        """Runs groups of many items at once on each core, and hides latency by that."""
        return self.occupancy is not None

    def cache(self, level: int) -> Cache | None:
        """The cache of that level, if there is one."""
        return next((c for c in self.caches if c.level == level), None)

    def rate(self, name: str) -> float | None:
        """Times that a core starts an instruction in a cycle; None for one that the machine has no number for."""
        return next((i.rate for i in self.instructions if i.name == name), None)

    def slots(self, name: str) -> float:
        """Multiplications in whose time a core starts an instruction; 1 for one that the machine has no number for."""
        rate = self.rate(name)
        return 1.0 if rate is None else self.ports.fma / rate

    def cycles(self, seconds: float) -> float:
        """Seconds as cycles of a core."""
        return seconds * self.clock_ghz * 1e9
