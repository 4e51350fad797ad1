"""Machines that programs are scheduled for: small ones, so that small tensors meet every kind of tile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tile_hal.interfaces import Device
from tile_ir.machine import Bandwidths, Cache, LocalMemory, Machine, Memory, Occupancy, Ports, VectorUnit
from tile_ir.semtree.verify import OPTIONAL_NODES
from tile_ir.target import HardwareSettings, PassConfig, Target

OWN = "own"
"""The device's own target."""
TINY = HardwareSettings(vec_size=4, vector_bytes=16, registers=16, l1_bytes=256, l2_bytes=1024, l3_bytes=64, cores=2)
MULTIPROCESSOR = Machine(
    clock_ghz=1.9,
    vector=VectorUnit(registers=255, bytes=16, native=4),
    ports=Ports(fma=4, add=4, load=1, store=1, issue=4),
    caches=(
        Cache(1, 1 << 17, 4, line=128, sector=32, latency=35),
        Cache(2, 50 << 20, 16, line=128, sector=32, latency=270, bandwidth=24),
    ),
    memory=Memory(latency=550, all_cores=Bandwidths(read=4200, write=4200)),
    local=LocalMemory(bytes=228 << 10),
    occupancy=Occupancy(),
)
GROUPS = HardwareSettings(
    threads=32, vec_size=4, use_global=False, mem_width=128, max_mem=8192, max_regs=65536, goal_groups=2,
    goal_flops_per_byte=12, registers=128, buffer_align=16, index_bits=32,
)  # fmt: skip
GROUP_NODES = frozenset(
    ("Barrier", "Extract", "Fma", "Insert", "Iota", "LastGroup", "ReduceLanes", "Return", "Shuffle", "Splat", "While")
)
CPU = (
    "scan", "inline", "in_place", "fuse", "tile_pipelines", "merge", "ungroup", "accumulate", "stream", "schedule_kernels"
)  # fmt: skip
GPU = (
    "scan", "inline", "in_place", "fuse", "merge", "ungroup", "accumulate", "item_chains", "stream", "group_tile", "repeat_small",
    "gpu_tile", "launch_together",
)  # fmt: skip
ROWS = tuple(name for name in GPU if name != "group_tile")

MACHINES: Mapping[str, tuple[Target, tuple[str, ...]]] = {
    "small": (Target("small", TINY), CPU),
    "wide": (Target("wide", replace(TINY, vec_size=8, vector_bytes=32, l1_bytes=1024, l2_bytes=8192)), CPU),
    "masked": (Target("masked", replace(TINY, masks=True)), CPU),
    "few": (Target("few", replace(TINY, registers=6, fma=False, l1_bytes=64, l2_bytes=256)), CPU),
    "plain": (Target("plain", replace(TINY, registers=6, fma=False, l1_bytes=64, l2_bytes=256)), CPU),
    "groups": (Target("groups", GROUPS, machine=MULTIPROCESSOR), GPU),
    "rows": (Target("rows", GROUPS, machine=MULTIPROCESSOR), ROWS),
    "sixteen": (Target("sixteen", replace(GROUPS, threads=16, max_mem=2048, vec_size=2), machine=MULTIPROCESSOR), GPU),
}
"""Targets by name, without their nodes, and the passes that they run."""
FAMILIES = ("gpu-nvidia", "gpu-amd")
"""Graphics processors as they are described, for programs that are large enough to meet their tiles."""
GROUPED = ("groups", "rows", "sixteen")
"""Machines of groups with local memory."""
PLAIN = frozenset({"Bitcast"})
"""What the machine "plain" lacks: there keys are no integers, and runs are merged."""
_OPTIONS = {"schedule_kernels": {"group_ops": 64}}
"""Small groups, so that work is split."""


def target(machine: str, passes: tuple[str, ...] | None, device: Device) -> Target:
    """A machine whose kernels `device` can run; `passes` instead of the machine's own."""
    if machine in (OWN, *FAMILIES):
        own = device.target if machine == OWN else _family(machine)
        return own if passes is None else replace(own, passes=tuple(PassConfig(p) for p in passes))
    base, names = MACHINES[machine]
    nodes = device.target.nodes or OPTIONAL_NODES & device.capabilities.nodes
    configured = tuple(PassConfig(n, options=_OPTIONS.get(n, {})) for n in (names if passes is None else passes))
    nodes = nodes & GROUP_NODES if machine in GROUPED else nodes - PLAIN if machine == "plain" else nodes
    return replace(base, nodes=nodes, passes=configured)


def _family(name: str) -> Target:
    # A process whose parent has OpenCL's binding loaded is refused its devices.
    from hal_opencl.families import family_target

    return family_target(name).resolved(cores=64)
