"""How the items of a group share the rows of a scan: what each is called, and where it is."""

from __future__ import annotations

from tile_ir.frozen import frozen
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Bind, Index

SPAN, MANY = 8, 32
"""Runs of a span, and runs from which on items take in spans: one after the other they would wait for longer than for a barrier."""
TEAM, PART, ROW, SPANS, RUN = "team", "part", "row", "span", "run"
"""Indexes of a group's items: over the teams of several rows, those of one row, the rows of a team, their spans of runs, and runs."""


@frozen
class Piece:
    """Tiles of a row that are alike."""

    loops: tuple[Index, ...]
    """Over them, where they are several."""
    start: Affine
    """The first cell of one."""
    ragged: bool
    """It goes beyond the end of the row: items ask of each cell whether it lies inside, and load one after the other."""


@frozen
class Shares:
    """How the items of a group share its rows: `rows` of them, `runs` of each, `length` cells to a run."""

    rows: int
    runs: int
    length: int
    teamed: bool
    """Teams of as many items as a run has cells copy runs side by side."""

    @property
    def team(self) -> tuple[int, int]:
        """Rows of a team, and runs of each."""
        runs = min(self.runs, self.length) if self.teamed else self.runs
        return (self.length // runs if self.teamed else self.rows), runs

    @property
    def span(self) -> int:
        """Runs of a span; all of a team where items take in one after the other."""
        runs = self.team[1]
        return SPAN if self._are_many and runs % SPAN == 0 else runs

    @property
    def spans(self) -> int:
        """Spans of a row; one where items take in one run after the other."""
        return self.runs // self.span if self._are_many else 1

    @property
    def _are_many(self) -> bool:
        return self.teamed and self.runs >= MANY

    @property
    def indexes(self) -> tuple[Index, ...]:
        """The group's items, outermost first: neighbours copy neighbours."""
        rows, runs = self.team
        counts = {TEAM: self.rows // rows, PART: self.runs // runs, ROW: rows, SPANS: runs // self.span, RUN: self.span}
        order = (TEAM, PART, ROW, SPANS, RUN) if self.teamed else (TEAM, PART, SPANS, RUN, ROW)
        found = tuple(Index(n, counts[n], bind=Bind.GROUP) for n in order if counts[n] > 1)
        return found or (Index(RUN, 1, bind=Bind.GROUP),)

    def at(self, *parts: tuple[str, int]) -> Affine:
        """The sum of the named indexes, each times its step, of those that there are."""
        known = {i.name for i in self.indexes if i.range > 1}
        return Affine.of([(n, step) for n, step in parts if n in known])

    @property
    def row(self) -> Affine:
        return self.at((TEAM, self.team[0]), (ROW, 1))

    @property
    def run(self) -> Affine:
        return self.at((PART, self.team[1])) + self.of_team

    @property
    def of_team(self) -> Affine:
        """The item's run among those of its team."""
        return self.at((SPANS, self.span), (RUN, 1))

    @property
    def own_span(self) -> Affine:
        return self.at((PART, self.team[1] // self.span), (SPANS, 1))

    @property
    def member(self) -> Affine:
        """The item's place in its team."""
        return self.at((ROW, self.team[1])) + self.of_team

    def check(self) -> None:
        """Raises ValueError for numbers that do not come out even."""
        rows, runs = self.team
        if self.rows % rows or self.runs % runs or rows * runs != (self.length if self.teamed else self.rows * runs):
            raise ValueError(
                f"{self.rows} rows of {self.runs} runs do not make teams of {self.length} items, one for each cell of a run"
            )
