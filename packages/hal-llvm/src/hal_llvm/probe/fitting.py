"""What rates say of a machine: its ports, latencies, functions, caches and memory, as the cost model counts them.

Whoever shares the machine only takes time, so rates of instructions are rounded up to whole ones, and no number is believed that is far
from the document's. What the model lets overlap, a loop's own loads and the nearer caches, is taken off its time. All numbers are
rounded so far that another probe of the same machine finds them again, as far as can be: kernels are planned by them. Instructions that
start in a cycle and those that a core looks ahead are no fewer than the document's: a neighbour on the same core, of whom nothing else
tells, halves both.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import ceil, log, log2

from tile_ir.frozen import replace
from tile_ir.machine import Bandwidths, Cache, Machine, Memory, Pages, Ports

from hal_llvm.probe.loops import WAITING
from hal_llvm.probe.timing import Rates

REACHED = 0.955
"""Share of a port's rate that loops reach, at most."""
BELIEVED = 4.0
"""Times that a number may differ from the document's."""
BANDWIDTHS, WAITS = 6, 2
"""Bandwidths, and costs of a page, that are told from each other between one and twice as much."""
CLOCK, SPLIT, WINDOW = 0.1, 0.5, 64
"""What a clock in GHz, the cost of an access to two lines, and a window are whole multiples of."""
DUPLEX = (1.0, 2**0.5, 2.0)
"""How long a line that comes and one that goes may take together, in times of one."""
ALIKE = 0.1
"""Shares by which times differ that may be the same: of ways that explain them as well, the first is taken."""
LEAST = 0.75
"""Share of the time of a walk that what it tells of took at least: the rest may have been slower in other loops."""
MOVED = {"read": (1, 0), "write": (0, 1), "copy": (1, 1)}
"""Loads and stores of each byte of a walk."""
PORTS = ("fma", "add", "vector", "load", "store", "shuffle", "issue")
LATENCIES = ("fma_latency", "add_latency", "minmax_latency")


def measured(machine: Machine, rates: Rates) -> Machine:
    """`machine`, which a document describes, as the rates say that it is."""
    ports, known = _ports(machine.ports, rates), machine.functions
    div, sqrt = (round(_believed(rates[n] * ports.fma, getattr(known, n))) for n in ("div", "sqrt"))
    clock = _believed(_whole(rates["clock"], CLOCK), machine.clock_ghz)
    functions, pages = replace(known, div=div, sqrt=sqrt), _pages(machine.pages, rates)
    found = replace(machine, clock_ghz=clock, ports=ports, functions=functions, pages=pages)
    for number in range(1, len(machine.caches)):
        caches = (*found.caches[:number], _cache(found, number, rates), *found.caches[number + 1 :])
        found = replace(found, caches=caches)
    return replace(found, memory=_memory(found, rates))


def _ports(known: Ports, rates: Rates) -> Ports:
    found = {name: _believed(ceil(REACHED / rates[name]), getattr(known, name)) for name in PORTS}
    found["issue"] = max(found["issue"], known.issue)
    latencies = {name: round(_believed(rates[name], getattr(known, name) or known.add_latency)) for name in LATENCIES}
    window = _whole(WAITING * latencies["fma_latency"] / rates["window"], WINDOW)
    split = _whole(rates["split"] / rates["load"] - 1, SPLIT)
    window = round(max(known.window, _believed(window, known.window)))
    return replace(known, **found, **latencies, split=_believed(split, known.split), window=window)


def _pages(known: Pages, rates: Rates) -> Pages:
    """What a load costs beyond that from a page which a nearer level has."""
    times = [rates["load"], *(rates[f"pages {n}"] for n, _ in enumerate(known.tlbs, 1))]
    costs = [max(1.0, far - near) for near, far in pairwise(times)]
    tlbs = zip(known.tlbs, costs, strict=True)
    return replace(known, tlbs=tuple(replace(t, latency=_stepped(cost, t.latency, WAITS)) for t, cost in tlbs))


def _whole(found: float, unit: float) -> float:
    return round(round(found / unit) * unit, 9)


def _stepped(found: float, known: float, steps: int) -> float:
    """The nearest of so many values in an octave."""
    return _believed(2 ** (round(log2(found) * steps) / steps), known)


def _believed(found: float, known: float) -> float:
    return min(known * BELIEVED, max(known / BELIEVED, found))


def _cache(machine: Machine, number: int, rates: Rates) -> Cache:
    """The level of that number: what it gives and takes by itself, and how much both at once hinder each other."""
    cache, near = machine.caches[number], replace(machine, caches=machine.caches[:number])
    read, write, copy = (
        _without(rates[f"L{cache.level} {kind}"], _moves(near, *moved), 1 + machine.ports.exposed)
        for kind, moved in MOVED.items()
    )
    tried = [replace(cache, bandwidth=1 / read, write=1 / _without(write, [read], d), duplex=d) for d in DUPLEX]
    fitted = min(tried, key=lambda c: int(abs(log(c.together(2 * read, 1 / c.write) / copy)) / ALIKE))
    return replace(
        fitted,
        bandwidth=_stepped(fitted.bandwidth, cache.bandwidth, BANDWIDTHS),
        write=_stepped(fitted.write, cache.write or cache.bandwidth, BANDWIDTHS),
    )


def _memory(machine: Machine, rates: Rates) -> Memory:
    """What a core gets from memory, and what all of them get, in the document's proportion."""
    beside = {
        "read": _moves(machine, *MOVED["read"]),
        "write": _moves(machine, *MOVED["write"]),
        "past": _moves(machine, *MOVED["write"])[:1],
    }
    cycles = {kind: machine.cycles(rates[f"memory {kind}"] * 1e-9) for kind in beside}
    found = [machine.clock_ghz / _without(cycles[kind], beside[kind], 1 + machine.ports.exposed) for kind in beside]
    known = machine.memory
    one = [_stepped(f, k, BANDWIDTHS) for f, k in zip(found, _each(known.one_core), strict=True)]
    shared = [f * a / k for f, a, k in zip(one, _each(known.all_cores), _each(known.one_core), strict=True)]
    return replace(known, one_core=Bandwidths(*one), all_cores=Bandwidths(*shared))


def _each(bandwidths: Bandwidths) -> tuple[float, float, float]:
    return bandwidths.read, bandwidths.write, bandwidths.non_temporal


def _moves(machine: Machine, loads: int, stores: int) -> list[float]:
    """Cycles of a byte that is loaded, stored or both, in the core and from each further level: what is stored comes first."""
    ports, lines = machine.ports, loads + stores
    core = max(loads / ports.load, stores / ports.store) / machine.vector.bytes
    return [core, *(c.together(lines / c.bandwidth, stores / (c.write or c.bandwidth)) for c in machine.caches[1:])]


def _without(whole: float, others: Sequence[float], equal: float) -> float:
    """What took part in `whole` beside `others`; not less than a share of it, for they may have been slower in other loops."""
    if equal <= 1:
        return whole
    power = log(2) / log(equal)
    return max(whole**power - sum(t**power for t in others), (LEAST * whole) ** power) ** (1 / power)
