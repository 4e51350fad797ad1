"""What happens in a run of the suite, entry by entry, in memory and in a file: what a process that dies leaves behind.

A report is made from a record, so that the tests that a crash or a hang took with it are in the report too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tile_hal.conformance.report import Case, DeviceFacts, Report, RunFacts

Key = tuple[str, int, str]
"""Device id, level, and case name of a test."""

MOST_HANGS = 3
"""Tests of one level that may hang before the rest of the level is left out."""
HUNG = "no end after"
"""What the reason of a test that hung says."""


class Record:
    """A run so far. Every change is an entry, and goes to the file, if there is one, before anything else happens."""

    def __init__(self, file: Path | None = None) -> None:
        """Continues what `file` holds."""
        self._file = file
        self.facts: RunFacts | None = None
        self.devices: tuple[DeviceFacts, ...] = ()
        self.planned: dict[str, dict[int, int]] = {}
        """Tests by device and level, whatever options leave out."""
        self.cases: dict[Key, Case] = {}
        self.started: Key | None = None
        """The test that runs now, or that was running when the process ended."""
        self.finished = False
        self.deaths = 0
        """Tests that their process ended in."""
        for line in _lines(file) if file is not None and file.exists() else ():
            self._apply(json.loads(line))

    def detach(self) -> None:
        """Write no more to the file: it is another process's."""
        self._file = None

    def begin(self, facts: RunFacts, devices: Iterable[DeviceFacts]) -> None:
        self._write({"run": asdict(facts), "devices": [asdict(d) for d in devices]})

    def plan(self, planned: Mapping[str, Mapping[int, int]]) -> None:
        self._write({"planned": {d: list(levels.items()) for d, levels in planned.items()}})

    def start(self, key: Key) -> None:
        self._write({"started": key})

    def add(self, case: Case) -> None:
        """The outcome of a test; a failing teardown does not turn back into a pass."""
        if case.key not in self.cases or case.outcome == "failed":
            self._write({"case": asdict(case)})

    def died(self, reason: str) -> None:
        """The process ended in the middle of a test."""
        assert self.started is not None
        self._write({"died": reason})
        self.add(Case(*self.started, "failed", reason))

    def finish(self) -> None:
        self._write({"finished": True})

    def hopeless(self, device: str, level: int) -> bool:
        """Whether so many tests of a level hung that the rest of it is not worth waiting for."""
        mine = (c for c in self.cases.values() if (c.device, c.level) == (device, level))
        return sum(HUNG in c.reason for c in mine) >= MOST_HANGS

    def report(self) -> Report:
        assert self.facts is not None
        cases = tuple(sorted(self.cases.values(), key=lambda c: (c.device, c.level)))
        return Report(self.facts, self.devices, cases, self.planned)

    def _write(self, entry: Mapping[str, Any]) -> None:
        text = json.dumps(entry)
        if self._file is not None:
            with self._file.open("a", encoding="utf-8") as out:
                out.write(text + "\n")
        self._apply(json.loads(text))

    def _apply(self, entry: Mapping[str, Any]) -> None:
        match entry:
            case {"run": facts, "devices": devices}:
                self.facts = replace(RunFacts(**facts), filters=tuple(facts["filters"]))
                self.devices = tuple(DeviceFacts(**d) for d in devices)
            case {"planned": planned}:
                self.planned = {device: dict(levels) for device, levels in planned.items()}
            case {"started": [device, level, name]}:
                self.started = device, level, name
            case {"case": facts}:
                case = Case(**facts)
                self.cases[case.key] = case
                self.started = None if case.key == self.started else self.started
            case {"died": _}:
                self.deaths += 1
            case _:
                self.finished = bool(entry["finished"])


def _lines(file: Path) -> list[str]:
    """The entries of a file; what a dying process left of one is cut off."""
    text = file.read_text("utf-8")
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        file.write_text(whole, "utf-8")
    return whole.splitlines()
