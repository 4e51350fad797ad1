"""Running the loops, all in turn and each beside one that tells the clock: whoever shares the machine takes time and gives none."""

from __future__ import annotations

import ctypes
import mmap
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager

from tile_ir.frozen import frozen, replace
from tile_ir.machine import Cache, Machine

from hal_llvm import binding
from hal_llvm.probe.loops import BLOCK, PAGES, Loop, Loops

ROUNDS, RUN, WALK = 48, 1e-5, 3e-5
"""Runs of each loop, all of them in turn, and seconds that one takes at least: of arithmetic, and of a walk over what a cache holds."""
FEW = 2
"""Runs that may have been the shortest because the clock changed meanwhile."""
SAMPLE, SAMPLES = 64, 3
"""Trips, and runs of so many, from which the length of a run is taken."""
SHORTEST = 1e-7
"""Seconds that no run is taken to be shorter than."""
HALF, OPERANDS = 0.5, 1024
"""What all operands are, so that results neither grow nor become so small that they take longer; and their number."""
PIECE, PIECES = 4 << 20, 16
"""Bytes of memory that are walked at once, and the number of such pieces: no cache has room for all."""
SWEEPS = ("past", "read", "past", "write")
"""Walks over all pieces; what is stored past the caches leaves them."""
CIRCLES = ("read", "write", "copy")
"""Walks over what a cache holds."""
TRANSLATED = 3
"""Times as many pages as a level keeps translations that a walk goes to, so that it finds none again."""
WARM = 2
"""Walks until data is where it stays: a level may get it only when a nearer one drops it."""
NEAR = 4
"""Times the level before that a walk over a level reaches: as little as possible of what others use, too."""
_TYPE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)

Rates = Mapping[str, float]
"""Cycles of one instruction of each loop; GHz as ``clock``; cycles of a byte as ``L2 read`` and so on; of a load from another page
than all others of some as ``pages 1`` for the nearest level of translations and so on; nanoseconds of a byte as ``memory read``."""


def rates(machine: Machine, processor: binding.Processor, fused: bool) -> Rates:
    """What the loops tell of this machine, in about a fifth of a second; OSError and RuntimeError where they cannot be run."""
    timer = _Timer(Loops(machine.vector.bytes, fused, machine.pages.bytes), processor)
    counts = [tlb.entries * TRANSLATED // PAGES * PAGES for tlb in machine.pages.tlbs]
    with _memory(PIECE * PIECES) as start, _memory((max(counts, default=0) + PAGES) * timer.apart, small=True) as far:
        runs = dict(timer.arithmetic(start))
        for cache in machine.caches[1:]:
            runs |= {f"L{cache.level} {kind}": timer.circle(kind, start, _within(cache, machine)) for kind in CIRCLES}
        for number, count in enumerate(counts, 1):
            walk = timer.circle("pages", far, count * timer.apart)
            runs[f"pages {number}"] = replace(walk, units=walk.units // timer.apart)
        return timer.measured(runs, start)


def _short(times: Sequence[float]) -> float:
    return sorted(times)[min(FEW, len(times) - 1)]


def _within(cache: Cache, machine: Machine) -> int:
    """Bytes that a level has room for and the one before it has not, in whole blocks of two equal parts."""
    before = next(c for c in reversed(machine.caches) if c.level < cache.level)
    size = min(cache.bytes // 2, NEAR * before.bytes, PIECE) if cache.level > 2 else min(cache.bytes // 2, PIECE)
    return max(1, size // (2 * BLOCK)) * 2 * BLOCK


@contextmanager
def _memory(size: int, small: bool = False) -> Generator[int]:
    """The address of fresh memory, with operands at its start and pages behind all of it: `small` ones, where the system can be asked."""
    with mmap.mmap(-1, size) as block:
        if small and hasattr(mmap, "MADV_NOHUGEPAGE"):
            block.madvise(mmap.MADV_NOHUGEPAGE)
        place = ctypes.c_char.from_buffer(block)
        try:
            start = ctypes.addressof(place)
            ctypes.memset(start, 0, size)
            (ctypes.c_float * OPERANDS).from_address(start)[:] = [HALF] * OPERANDS
            yield start
        finally:
            del place


@frozen
class _Run:
    """Arguments of a loop, and what its time is divided by."""

    name: str
    p: int
    q: int
    bytes: int
    times: int
    units: int
    warm: bool = False
    """Others may have been before: it runs a while without being timed."""


class _Timer:
    """Loaded loops."""

    def __init__(self, loops: Loops, processor: binding.Processor) -> None:
        self.apart = loops.apart
        self._arithmetic: list[Loop] = [*loops.arithmetic()]
        names = [*(loop.name for loop in self._arithmetic), *(loop.name for loop in loops.walks())]
        module = binding.Module(loops.module(), binding.target_machine(processor))
        try:
            self._code = binding.LoadedCode([module.object_code()], names)
        finally:
            module.close()
        self._functions = {name: _TYPE(self._code.addresses[name]) for name in names}
        self._call = 0.0
        """Seconds that calling takes."""

    def _seconds(self, run: _Run) -> float:
        function = self._functions[run.name]
        if run.warm:
            function(run.p, run.q, run.bytes, WARM)
        start = time.perf_counter()
        function(run.p, run.q, run.bytes, run.times)
        return max(SHORTEST, time.perf_counter() - start - self._call)

    def _long(self, run: _Run, least: float) -> _Run:
        """The run so often that it takes at least so many seconds."""
        sampled = min(self._seconds(run) for _ in range(SAMPLES))
        times = max(run.times, int(run.times * least / sampled))
        return replace(run, times=times, units=run.units // run.times * times)

    def arithmetic(self, start: int) -> Iterator[tuple[str, _Run]]:
        """A run of each loop of arithmetic, that of the clock first."""
        runs = [_Run(i.name, start, start + PIECE, 1, SAMPLE, i.count * SAMPLE) for i in self._arithmetic]
        self._call = min(self._seconds(replace(runs[0], times=1)) for _ in range(ROUNDS))
        return ((run.name, self._long(run, RUN)) for run in runs)

    def circle(self, kind: str, start: int, size: int) -> _Run:
        """A walk again and again within so many bytes."""
        bytes_ = size // 2 if kind == "copy" else size
        return self._long(_Run(kind, start, start + (size - bytes_), bytes_, 1, bytes_, warm=True), WALK)

    def measured(self, runs: Mapping[str, _Run], start: int) -> Rates:
        """The rates: of the loops in cycles, of memory in nanoseconds."""
        clock, sweeps = runs["clock"], self._sweeps(start)
        found, memory, ticks = {name: list[float]() for name in runs}, dict[str, list[float]](), list[float]()
        for _ in range(ROUNDS):
            pairs = [(name, self._seconds(run) / run.units, self._seconds(clock)) for name, run in runs.items()]
            ticks.append(min(tick for _, _, tick in pairs) / clock.units)
            for name, seconds, _ in pairs:
                found[name].append(seconds / ticks[-1])
            for run in (next(sweeps), next(sweeps)):
                memory.setdefault(f"memory {run.name}", []).append(self._seconds(run) / run.units * 1e9)
        rates = {name: _short(cycles) for name, cycles in found.items()}
        return rates | {name: min(times) for name, times in memory.items()} | {"clock": 1e-9 / _short(ticks)}

    def _sweeps(self, start: int) -> Iterator[_Run]:
        """Walks over memory, a piece each, for ever."""
        while True:
            for kind in SWEEPS:
                for at in range(start, start + PIECES * PIECE, PIECE):
                    yield _Run(kind, at, at, PIECE, 1, PIECE)
