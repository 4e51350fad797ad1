"""Caches, pages and clock as the system describes them (Linux: sysfs), laid over a target document's numbers."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from tile_ir.machine import Cache, Machine, Pages

_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "": 1}
_MAX_WAYS = 64
"""More ways than this stand for a fully associative cache, or for a hypervisor's invention."""
_DIE = 32 << 20
"""Bytes of a shared last level that are believed: those of one die, which whoever works has while its neighbours rest."""
_ENTITLED = 3
"""Of more than that it counts for at most so many times the private level before it, for each processor of ours that shares it.

Virtual machines are told of the whole host's cache, hundreds of megabytes, of which their processors keep a small part.
"""


def read(path: Path) -> str:
    """A small system file; empty where there is none."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError):
        return ""


def probed(machine: Machine, cpus: Sequence[int], root: Path = Path("/")) -> Machine:
    """`machine` with what the system says of the first of `cpus`, the processors that this process may use."""
    first = cpus[0] if cpus else 0
    caches = machine.caches
    for found in system_caches(first, cpus, root):
        caches = tuple(_merged(c, found) if c.level == found.level else c for c in caches)
    return replace(
        machine,
        caches=bounded(caches),
        pages=_pages(machine.pages, root),
        clock_ghz=_clock(first, root) or machine.clock_ghz,
    )


def _merged(known: Cache, found: Cache) -> Cache:
    """The document's cache, of the size and sharing that the system says."""
    ways, line = found.ways or known.ways, found.line or known.line
    return replace(known, bytes=found.bytes, ways=ways, line=line, shared=found.shared)


def system_caches(cpu: int, cpus: Collection[int], root: Path = Path("/")) -> list[Cache]:
    """Data and unified caches of processor `cpu`; 0 ways or bytes of a line where the system does not say."""
    found: list[Cache] = []
    for folder in sorted((root / f"sys/devices/system/cpu/cpu{cpu}/cache").glob("index*")):
        level, kind = read(folder / "level").strip(), read(folder / "type").strip()
        size = re.fullmatch(r"(\d+)([KMG]?)", read(folder / "size").strip())
        if not size or not int(size[1]) or kind not in ("Data", "Unified") or not level.isdigit():
            continue
        ways, line = (_number(folder / name) for name in ("ways_of_associativity", "coherency_line_size"))
        sharing = processors(read(folder / "shared_cpu_list"))
        bytes_ = int(size[1]) * _UNITS[size[2]]
        found.append(Cache(int(level), bytes_, min(ways, _MAX_WAYS), line, shared=max(1, len(sharing & {*cpus}))))
    return found


def bounded(caches: Sequence[Cache]) -> tuple[Cache, ...]:
    """The caches, nearest first, with a shared last level cut to what its processors are entitled to."""
    levels = sorted(caches, key=lambda c: c.level)
    if len(levels) < 2:
        return tuple(levels)
    *near, before, last = levels
    most = max(_DIE, _ENTITLED * before.bytes * max(1, last.shared // max(1, before.shared)))
    return (*near, before, replace(last, bytes=min(last.bytes, most)) if last.level > 2 else last)


def processors(text: str) -> set[int]:
    """The numbers of a list such as ``0-3,8``."""
    numbers: set[int] = set()
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", text):
        numbers.update(range(int(first), int(last or first) + 1))
    return numbers


def _number(path: Path) -> int:
    text = read(path).strip()
    return int(text) if text.isdigit() else 0


def _pages(known: Pages, root: Path) -> Pages:
    """Page size, and from which size on NumPy's and our allocations ask for huge ones, where the system grants them."""
    chosen = re.search(r"\[(\w+)\]", read(root / "sys/kernel/mm/transparent_hugepage/enabled"))
    size = os.sysconf("SC_PAGESIZE") if hasattr(os, "sysconf") else known.bytes
    granted = {"always": known.huge_bytes, "madvise": 2 * known.huge_bytes}
    return replace(known, bytes=size, huge_from=granted.get(chosen[1] if chosen else "", 0))


def _clock(cpu: int, root: Path) -> float:
    """GHz that the processor reaches; 0 where the system does not say (most virtual machines)."""
    return _number(root / f"sys/devices/system/cpu/cpu{cpu}/cpufreq/cpuinfo_max_freq") / 1e6
