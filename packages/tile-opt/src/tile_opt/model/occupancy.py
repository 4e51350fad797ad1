"""Groups on a GPU's multiprocessors: how many one of them holds at once, and in which rounds it runs its share of all."""

from __future__ import annotations

from collections.abc import Iterator

from tile_ir.machine import Machine

UNIT = 8
"""Registers of an item are given out by so many."""
RESERVED = 1024
"""Bytes of local memory that a group takes beside what it asks for."""
EVEN = 2
"""Groups at once up to which those of the last round share their multiprocessors as those of all others do."""
ALONE = 1.12
"""Cycles from one instruction of a sub-group to the next where no other sub-group fills the gaps."""
LOOP = 20
"""Instructions' worth of time between one straight-line body and the next: the first loads of a body wait."""
LONELY = 1.15
"""Times as long that steps take where nobody else works while all items of a group wait for one another."""


def resident(items: int, registers: float, local: int, machine: Machine) -> int:
    """Groups of so many items with so many registers each, and bytes of local memory, that a multiprocessor holds; 0 for none."""
    occupancy = machine.occupancy
    assert occupancy is not None
    items = -(-items // occupancy.subgroup) * occupancy.subgroup
    most = min(
        occupancy.groups, occupancy.items // items, occupancy.registers // int(-(-registers // UNIT) * UNIT * items)
    )
    if local and machine.local is not None:
        most = min(most, machine.local.bytes // (local + RESERVED))
    return max(0, most)


def rounds(groups: int, resident: int, machine: Machine) -> Iterator[tuple[int, int]]:
    """(how often, groups at once) on the multiprocessor that has most of them.

    Many groups of a multiprocessor finish one after the other, and those of the last round spread evenly; two at once do not.
    """
    full, rest = divmod(-(-groups // machine.cores), resident)
    if full:
        yield full, resident
    if rest:
        yield 1, resident if full and resident <= EVEN else rest


def hindrance(together: int, subgroups: int, machine: Machine) -> float:
    """Times as long that the instructions of so many groups take as if they were dealt out evenly to what issues them."""
    assert machine.occupancy is not None
    slots, count = machine.occupancy.slots, together * subgroups
    lonely = LONELY if together == 1 and subgroups > slots else 1.0
    return lonely * -(-count // slots) * slots / count
