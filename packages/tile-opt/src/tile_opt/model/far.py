"""From which size on the caches do not keep a result for whoever reads it next."""

from __future__ import annotations

from tile_ir.machine import Machine
from tile_ir.target import HardwareSettings

SHARE = 0.25
"""Of the last level: all of it is counted, and what is read and written beside needs room."""
NEARLY = 0.5
"""Of the way to memory: a level that lies beyond is no nearer than that to lines which come one by one."""


def lines_far_from(machine: Machine, settings: HardwareSettings, share: float = SHARE) -> float:
    """Bytes of a transpose's result from which its lines go to memory, since each waits as long as the last level is far.

    Where that is nearly as far as memory, what the cores' own levels hold together counts instead.
    """
    most = share * settings.l3_bytes
    if len(machine.caches) < 3:
        return most
    *_, own, last = machine.caches
    if last.latency < NEARLY * machine.cycles(machine.memory.latency * 1e-9):
        return most
    return min(most, own.bytes * max(1.0, settings.cores / own.shared))
