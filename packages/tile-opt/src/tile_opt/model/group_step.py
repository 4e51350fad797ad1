"""The cost of one pipeline step of a tiled contraction on a GPU; split reductions differ in the number of steps only."""

from __future__ import annotations

from tile_ir.frozen import frozen

SHARPNESS = 4
"""How little two limits disturb each other while one of them is far from reached."""


@frozen
class Step:
    """One step of a tile's reduction on a multiprocessor; the whole reduction where nothing is staged."""

    registers: int
    resident: int
    subgroups: int
    issued: float
    """Cycles in which a sub-group's instructions start, gaps that others leave included."""
    alone: float
    """Cycles of a sub-group that has its slot for itself."""
    delivered: float
    """Cycles of local memory for a group."""
    fetched: float
    """Bytes that a group fetches."""
    stored: float
    """Bytes that the results of a group cost, however many groups share the reduction."""
    hindered: float
    """How much longer all steps take by what the compiler makes of them."""
    meeting: float
    """Cycles until the results of all teams, and of all items, have met."""

    def cycles(self, together: int, slots: int) -> float:
        """Of `together` groups at once."""
        issued = -(-together * self.subgroups // slots) * self.issued
        delivered = together * self.delivered
        return max(self.alone, (issued**SHARPNESS + delivered**SHARPNESS) ** (1 / SHARPNESS))
