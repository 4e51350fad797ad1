"""What the machine offers: processors this process may use, register files, the target made of them."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from tile_ir.document import from_document
from tile_ir.machine import Machine
from tile_ir.target import Target

from hal_llvm.caches import probed, read
from hal_llvm.dots import forms


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
        fields = read(folder / "cpu.max").split()
        if len(fields) == 2 and fields[0].isdigit():
            quotas.append(int(fields[0]) / int(fields[1]))
    limit, period = read(base / "cpu/cpu.cfs_quota_us").strip(), read(base / "cpu/cpu.cfs_period_us").strip()
    if limit.isdigit() and period.isdigit() and int(limit) > 0:
        quotas.append(int(limit) / int(period))
    return min(quotas, default=None)


def _own_cgroup(root: Path) -> str:
    for line in read(root / "proc/self/cgroup").splitlines():
        if line.startswith("0::"):
            return line[3:].strip("/")
    return ""


def processor_name() -> str:
    """What a person calls the processor."""
    found = re.search(r"^model name\s*:\s*(.+)$", read(Path("/proc/cpuinfo")), re.MULTILINE)
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


def present(features: str) -> frozenset[str]:
    """The features that LLVM's list of them (``+avx2,-avx512f``) says are there."""
    return frozenset(f[1:] for f in features.split(",") if f.startswith("+"))


@cache
def _rules() -> tuple[Mapping[str, Any], ...]:
    return tuple(json.loads(files("hal_llvm").joinpath("targets", "machines.json").read_text(encoding="utf-8")))


def _rule(features: str) -> Mapping[str, Any] | None:
    """The first rule of `machines.json` whose features fit; names of processors may lie."""
    found = present(features)
    fitting = (r for r in _rules() if found.issuperset(r["features"]) and found.isdisjoint(r.get("without", ())))
    return next(fitting, None)


def described(features: str) -> bool:
    """Whether somebody wrote down the numbers of processors with these features."""
    return _rule(features) is not None


def known_machine(machine: Machine, features: str) -> Machine:
    """`machine` with the numbers of the rule that fits, if any does."""
    rule = _rule(features)
    return machine if rule is None else from_document(machine, rule["machine"], "machine")


def host_target(
    triple: str, features: str, cores: int, cpus: Sequence[int] | None = None, root: Path = Path("/")
) -> Target:
    """The family's target with this machine's features, caches and cores; `cpus` are the processors it may use."""
    base = family_target(family(triple, features))
    machine = probed(known_machine(base.machine, features), available_cpus() if cpus is None else cpus, root)
    sizes = {f"l{c.level}_bytes": c.bytes for c in machine.caches if c.level <= 3}
    nodes = base.nodes.union(forms(present(features)))
    return replace(base, machine=machine, nodes=nodes).resolved(cores=cores, max_mem=sizes["l1_bytes"], **sizes)
