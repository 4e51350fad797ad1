"""What the machine offers: processors this process may use, cache sizes, register files."""

from __future__ import annotations

import os
import platform
import re
from importlib.resources import files
from pathlib import Path

from tile_ir.target import Target


def available_cpus() -> list[int]:
    """Numbers of the processors that affinity allows; empty when the system cannot say."""
    getter = getattr(os, "sched_getaffinity", None)
    return sorted(getter(0)) if getter is not None else []


def thread_count(root: Path = Path("/")) -> int:
    """Threads that can run at once: affinity, limited by the cgroup's processor quota."""
    cpus = len(available_cpus()) or os.cpu_count() or 1
    quota = cgroup_quota(root)
    return max(1, min(cpus, -int(-quota // 1))) if quota else cpus


def cgroup_quota(root: Path = Path("/")) -> float | None:
    """Processors that the cgroup (version 2 or 1) grants, None without a limit."""
    base = root / "sys/fs/cgroup"
    own = _own_cgroup(root)
    quotas: list[float] = []
    for folder in {base, *(base / own / up for up in (".", "..", "../..") if own)}:
        fields = _read(folder / "cpu.max").split()
        if len(fields) == 2 and fields[0].isdigit():
            quotas.append(int(fields[0]) / int(fields[1]))
    limit, period = _read(base / "cpu/cpu.cfs_quota_us").strip(), _read(base / "cpu/cpu.cfs_period_us").strip()
    if limit.isdigit() and period.isdigit() and int(limit) > 0:
        quotas.append(int(limit) / int(period))
    return min(quotas, default=None)


def _own_cgroup(root: Path) -> str:
    for line in _read(root / "proc/self/cgroup").splitlines():
        if line.startswith("0::"):
            return line[3:].strip("/")
    return ""


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "": 1}


def cache_sizes(root: Path = Path("/")) -> dict[str, int]:
    """`l1_bytes`, `l2_bytes` and `l3_bytes` (data or unified) of processor 0, as far as the system tells."""
    sizes: dict[str, int] = {}
    for folder in sorted((root / "sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind = _read(folder / "level").strip(), _read(folder / "type").strip()
        size = re.fullmatch(r"(\d+)([KMG]?)", _read(folder / "size").strip())
        if size and kind in ("Data", "Unified") and level in ("1", "2", "3"):
            sizes[f"l{level}_bytes"] = int(size[1]) * _UNITS[size[2]]
    return sizes


def processor_name() -> str:
    """What a person calls the processor."""
    found = re.search(r"^model name\s*:\s*(.+)$", _read(Path("/proc/cpuinfo")), re.MULTILINE)
    return found[1].strip() if found else platform.processor() or platform.machine()


FAMILIES = ("avx512", "avx2", "sse2", "neon")
"""Register-file families, each a target document in `targets/`."""


def family(triple: str, features: str) -> str:
    """The register-file family of a processor."""
    present = set(features.split(","))
    if triple.startswith(("aarch64", "arm64")):
        return "neon"
    if {"+avx512f", "+avx512dq", "+avx512bw", "+avx512vl"} <= present:
        return "avx512"
    return "avx2" if {"+avx2", "+fma"} <= present else "sse2"


def family_target(name: str) -> Target:
    """The target document of a family, before probing."""
    return Target.from_json(files("hal_llvm").joinpath("targets", f"{name}.json").read_text(encoding="utf-8"))


def host_target(triple: str, features: str, cores: int) -> Target:
    """The family's target with this machine's caches and cores."""
    sizes = cache_sizes()
    first = {"max_mem": sizes["l1_bytes"]} if "l1_bytes" in sizes else {}
    return family_target(family(triple, features)).resolved(cores=cores, **sizes, **first)
