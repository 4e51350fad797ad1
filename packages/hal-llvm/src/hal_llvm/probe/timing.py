"""Running the loops: the shortest time of each counts, for whoever shares the machine takes time and never gives any."""

from __future__ import annotations

import ctypes
import mmap
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager

from tile_ir.machine import Cache, Machine

from hal_llvm import binding
from hal_llvm.probe.loops import BLOCK, Loops

ROUNDS, RUN = 50, 1e-5
"""Runs of each loop of arithmetic, all of them in turn, and seconds that one takes at least."""
WALKS, WALK = 12, 3e-5
"""Runs of each walk over what a cache holds, and seconds that one takes at least."""
SAMPLE, SAMPLES = 64, 3
"""Trips, and runs of so many, from which the length of a run is taken."""
SHORTEST = 1e-7
"""Seconds that no run is taken to be shorter than."""
HALF, OPERANDS = 0.5, 1024
"""What all operands are, so that results neither grow nor become so small that they take longer; and their number."""
PIECE, PIECES = 4 << 20, 16
"""Bytes of memory that are walked at once, and the number of such pieces: no cache has room for all."""
NEAR = 4
"""Times the level before that a walk over a level reaches: as little as possible of what others use, too."""
_TYPE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)

Rates = Mapping[str, float]
"""Cycles of one instruction of each loop; GHz as ``clock``; cycles of a byte as ``L2 read`` and so on; nanoseconds as ``memory read``."""


def rates(machine: Machine, processor: binding.Processor, fused: bool) -> Rates:
    """What the loops tell of this machine, in about a tenth of a second; OSError and RuntimeError where they cannot be run."""
    timer = _Timer(Loops(machine.vector.bytes, fused), processor)
    with _memory(PIECE * PIECES) as start:
        seconds = timer.arithmetic(start)
        clock = 1e-9 / seconds.pop("clock")
        for cache in machine.caches[1:]:
            walked = timer.walks(start, _within(cache, machine))
            seconds |= {f"L{cache.level} {kind}": found for kind, found in walked.items()}
        cycles = {name: found * clock * 1e9 for name, found in seconds.items()}
        return {"clock": clock, **cycles, **{f"memory {kind}": s * 1e9 for kind, s in timer.memory(start).items()}}


def _within(cache: Cache, machine: Machine) -> int:
    """Bytes that a level has room for and the one before it has not, in whole blocks of two equal parts."""
    before = next(c for c in reversed(machine.caches) if c.level < cache.level)
    size = min(cache.bytes // 2, NEAR * before.bytes, PIECE) if cache.level > 2 else min(cache.bytes // 2, PIECE)
    return max(1, size // (2 * BLOCK)) * 2 * BLOCK


@contextmanager
def _memory(size: int) -> Generator[int]:
    """The address of fresh memory, with operands at its start and pages behind all of it."""
    with mmap.mmap(-1, size) as block:
        place = ctypes.c_char.from_buffer(block)
        try:
            start = ctypes.addressof(place)
            ctypes.memset(start, 0, size)
            (ctypes.c_float * OPERANDS).from_address(start)[:] = [HALF] * OPERANDS
            yield start
        finally:
            del place


class _Timer:
    """Loaded loops."""

    def __init__(self, loops: Loops, processor: binding.Processor) -> None:
        self._counts = {loop.name: loop.count for loop in loops.arithmetic()}
        names = [*self._counts, *(loop.name for loop in loops.walks())]
        module = binding.Module(loops.module(), binding.target_machine(processor))
        try:
            self._code = binding.LoadedCode([module.object_code()], names)
        finally:
            module.close()
        self._functions = {name: _TYPE(self._code.addresses[name]) for name in names}
        self._call = 0.0
        """Seconds that calling takes."""

    def _run(self, name: str, p: int, q: int, bytes_: int, times: int) -> float:
        function = self._functions[name]
        start = time.perf_counter()
        function(p, q, bytes_, times)
        return max(SHORTEST, time.perf_counter() - start - self._call)

    def arithmetic(self, start: int) -> dict[str, float]:
        """Seconds of one instruction of each loop."""
        other = start + PIECE
        self._call = min(self._run("clock", start, other, 1, 1) for _ in range(ROUNDS))
        sampled = {n: min(self._run(n, start, other, 1, SAMPLE) for _ in range(SAMPLES)) for n in self._counts}
        times = {n: max(SAMPLE, int(SAMPLE * RUN / seconds)) for n, seconds in sampled.items()}
        rounds = [{n: self._run(n, start, other, 1, t) for n, t in times.items()} for _ in range(ROUNDS)]
        return {n: min(found[n] for found in rounds) / t / self._counts[n] for n, t in times.items()}

    def walks(self, start: int, size: int) -> dict[str, float]:
        """Seconds of a byte of each walk, again and again within so many bytes."""
        found = dict[str, float]()
        for kind in ("read", "write", "copy"):
            bytes_ = size // 2 if kind == "copy" else size
            other = start + (size - bytes_)
            first = min(self._run(kind, start, other, bytes_, 1) for _ in range(SAMPLES))
            times = max(1, int(WALK / first))
            found[kind] = min(self._run(kind, start, other, bytes_, times) for _ in range(WALKS)) / bytes_ / times
        return found

    def memory(self, start: int) -> dict[str, float]:
        """Seconds of a byte that no cache has, of the piece that took least; what is stored past the caches leaves them."""
        pieces = [start + n * PIECE for n in range(PIECES)]
        return {
            kind: min(self._run(kind, at, at, PIECE, 1) for at in pieces) / PIECE
            for kind in ("past", "read", "past", "write")
        }
