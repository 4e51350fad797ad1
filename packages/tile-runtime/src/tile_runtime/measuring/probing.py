"""Programs that tell what a machine is like: probes, each for one of its numbers, and trials, by which numbers are judged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tile_ir.frozen import frozen
from tile_ir.machine import Bandwidths, Cache, Machine

Shapes = tuple[tuple[int, ...], ...]
Change = Callable[[Machine, float], Machine]
LARGEST = 1 << 27
"""Elements of a probe of memory, bytes of one of a cache, at most."""
WITHIN = 1048
"""Columns of rows that begin within lines."""
_SUM = "function (A[M, N]) -> (S) { S[i : M] = +(A[i, j]); }"
_ADD = "function (A, B) -> (C) { C = A + B; }"
_ROWS = "function (A[M, N], B[N]) -> (C) { C = A + B; }"
_PRODUCT = "function (A[M, L], B[L, N]) -> (C) { C[i, j : M, N] = +(A[i, k] * B[k, j]); }"
_SOFTMAX = """function (A[M, N]) -> (R) {
    X[i, 0 : M, 1] = >(A[i, j]); E = exp(A - X); S[i, 0 : M, 1] = +(E[i, j]); R = E / S;
}"""
_WINDOWS = "function (A[N, H, W, C], B[I, J, C, O]) -> (R) { R[n, y, x, o : N, H, W, O] = +(A[n, y + i - 1, x + j - 1, c] * B[i, j, c, o]); }"


@frozen
class Trial:
    """A program on inputs called A and B."""

    name: str
    source: str
    shapes: Shapes


@frozen
class Probe(Trial):
    """One whose time is mostly due to one number; `change` makes what that number stands for take so many times as long."""

    change: Change


def probes(machine: Machine) -> Iterator[Probe]:
    """What is measured on a machine: its start, arithmetic, work for several cores, each cache, and memory both ways."""
    yield Probe("start", _ADD, ((8,), (8,)), start)
    side = 1024 if machine.is_gpu else 192
    yield Probe("arithmetic", _PRODUCT, ((side, side), (side, side)), clock)
    if machine.cores > 1 and not machine.is_gpu:
        short = round(5 * (machine.vector.bytes / 64) ** (1 / 3)) * 16  # as long, whatever the vectors' width
        yield Probe("hand-off", _PRODUCT, ((short, short), (short, short)), handoff)
    for number, cache in enumerate(machine.caches[1:], 1):
        rows = max(16, min(_all_of(machine, cache) // 3, LARGEST) // 4096)
        yield Probe(f"L{cache.level}", _SUM, ((rows, 1024),), rate_of(number))
    yield from _of_memory(machine)


def _of_memory(machine: Machine) -> Iterator[Probe]:
    last = _all_of(machine, machine.caches[-1]) if machine.caches else 1 << 20
    many = max(1 << 22, min(LARGEST, last // 4 * 4))
    if len(machine.caches) > 2:
        yield Probe("size of the last cache", _SUM, ((last // 4096, 1024),), size_of_last)
    yield Probe("memory, reading", _SUM, ((many // 1024, 1024),), read)
    if machine.is_gpu:
        yield Probe("memory, both ways", _ADD, ((many // 2,), (many // 2,)), write)
    else:
        yield Probe("memory, both ways", _ROWS, ((many // 2 // WITHIN, WITHIN), (WITHIN,)), write)
        yield Probe("memory, past the caches", _ADD, ((many // 2,), (many // 2,)), past)


def trials(machine: Machine) -> Iterator[Trial]:
    """Programs of several kinds and sizes that no number is fitted to."""
    times = 16 if machine.is_gpu else 1
    yield Trial("small sum", _ADD, ((5000,), (5000,)))
    yield Trial("few rows", _SOFTMAX, ((3, 5),))
    for rows, inner, columns in ((300, 500, 200), (64, 1024, 70), (700, 90, 800)):
        yield Trial("product", _PRODUCT, ((times * rows, inner), (inner, columns)))
    yield Trial("one row", _PRODUCT, ((1, 1200), (1200, times * 900)))
    yield Trial("windows", _WINDOWS, ((times, 28, 30, 32), (3, 3, 32, 48)))
    for rows, columns in ((60, 900), (900, 120), (1200, 1100)):
        yield Trial("softmax", _SOFTMAX, ((times * rows, columns),))
    for rows, columns in ((300, 400), (40, 30_000), (6000, 1500)):
        yield Trial("sums of rows", _SUM, ((times * rows, columns),))
    for rows, columns in ((50, 700), (500, 1000), (4400, 1024), (4400, 1032)):
        yield Trial("rows and a row", _ROWS, ((times * rows, columns), (columns,)))


def _all_of(machine: Machine, cache: Cache) -> int:
    """Bytes of a level in all cores that work together: what one core has holds a small part of a probe's data."""
    return cache.bytes * max(1, machine.cores // cache.shared)


# --- numbers ----------------------------------------------------------------------------------------


def start(machine: Machine, factor: float) -> Machine:
    """The start of a kernel takes `factor` times as long; so for those that follow."""
    return replace(machine, launch=replace(machine.launch, kernel=machine.launch.kernel * factor))


def handoff(machine: Machine, factor: float) -> Machine:
    """Waking the other cores."""
    return replace(machine, launch=replace(machine.launch, handoff=machine.launch.handoff * factor))


def clock(machine: Machine, factor: float) -> Machine:
    """A cycle."""
    return replace(machine, clock_ghz=machine.clock_ghz / factor)


def rate_of(number: int) -> Change:
    """Lines between the cache of that number and the one before it."""

    def change(machine: Machine, factor: float) -> Machine:
        old = machine.caches[number]
        return _cache(machine, number, replace(old, bandwidth=old.bandwidth / factor, write=old.write / factor))

    return change


def size_of_last(machine: Machine, factor: float) -> Machine:
    """The last cache holds so many times less."""
    last = machine.caches[-1]
    return _cache(machine, len(machine.caches) - 1, replace(last, bytes=int(last.bytes / factor)))


def _cache(machine: Machine, number: int, cache: Cache) -> Machine:
    return replace(machine, caches=tuple(cache if n == number else c for n, c in enumerate(machine.caches)))


def read(machine: Machine, factor: float) -> Machine:
    """Bytes from memory."""
    return _bandwidths(machine, lambda b: replace(b, read=b.read / factor))


def write(machine: Machine, factor: float) -> Machine:
    """Bytes to memory."""
    return _bandwidths(machine, lambda b: replace(b, write=b.write / factor))


def past(machine: Machine, factor: float) -> Machine:
    """Bytes to memory past the caches."""
    return _bandwidths(machine, lambda b: replace(b, non_temporal=b.non_temporal / factor))


def _bandwidths(machine: Machine, change: Callable[[Bandwidths], Bandwidths]) -> Machine:
    memory = machine.memory
    changed = replace(memory, one_core=change(memory.one_core), all_cores=change(memory.all_cores))
    return replace(machine, memory=changed)
