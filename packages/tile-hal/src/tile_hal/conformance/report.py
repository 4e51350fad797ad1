"""What a conformance run found: per device and level, as JSON and as a Markdown support table."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, field, replace
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from tile_ir.dtype import DType
from tile_ir.frozen import frozen

import tile_hal
from tile_hal.interfaces import HAL_API, Device

if TYPE_CHECKING:
    import pytest

LEVELS = {
    0: "plugin and device facts",
    1: "buffers and mapping",
    2: "copies, fills, events, dependencies",
    3: "operations, dtypes, semtree nodes",
    4: "language",
    5: "faults and stress",
}
"""The ladder: each level assumes the ones below it."""

OUTCOMES = ("passed", "failed", "skipped", "quirk", "inapplicable")
"""Of a test: a quirk failed as declared; skipped lacks a dtype, node or the like; inapplicable is for another kind of device."""

FORMAT = 2
"""Version of the JSON document."""


@frozen
class Case:
    """One test on one device; `outcome` is one of OUTCOMES."""

    device: str
    level: int
    name: str
    outcome: str
    reason: str = ""
    seconds: float = 0.0

    @property
    def key(self) -> tuple[str, int, str]:
        return self.device, self.level, self.name


def versions(*distributions: str) -> dict[str, str]:
    """Of Python, and of installed distributions."""
    return {"python": platform.python_version(), **{name: version(name) for name in distributions}}


@frozen
class RunFacts:
    """How the suite was run: what somebody needs to run it again."""

    backend: str
    level: int = max(LEVELS)
    """The last level that was asked for."""
    examples: int | None = None
    seed: int | None = None
    timeout: float = 0.0
    """Seconds until a test that hangs failed."""
    filters: tuple[str, ...] = ()
    """Options of pytest that left tests out."""
    time: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    """When it began, UTC."""
    host: str = field(default_factory=platform.platform)
    versions: dict[str, str] = field(default_factory=lambda: versions("numpy", "tile-hal", "tile-ir"))


@frozen
class DeviceFacts:
    """What the report says of a device besides outcomes."""

    id: str
    name: str
    driver: str
    distribution: str
    dtypes: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    quirks: dict[str, str] = field(default_factory=dict[str, str])
    is_async: bool = False
    executes: bool = True
    max_group_size: int = 1
    subgroup: int = 1
    codegen: str = "semtree"
    versions: dict[str, str] = field(default_factory=dict[str, str])
    """Of what is beneath the plugin: its driver, its firmware."""
    features: tuple[str, ...] = ()
    """The optional features of the contract that it offers."""
    flushes_subnormals: tuple[str, ...] = ()

    @staticmethod
    def bare(id: str) -> DeviceFacts:
        """Of a device that is not whole: what it can do is not known."""
        driver = id.partition(":")[0]
        owner = next((p for p in tile_hal.plugins() if p.driver == driver), None)
        return DeviceFacts(id, id, driver, f"{owner.distribution} {owner.version}".strip() if owner else "")

    @staticmethod
    def of(device: Device) -> DeviceFacts:
        able = device.capabilities
        return replace(
            DeviceFacts.bare(device.id),
            name=device.name,
            dtypes=tuple(d.value for d in DType if d in able.dtypes),
            nodes=tuple(sorted(able.nodes)),
            quirks=dict(able.quirks),
            is_async=able.is_async,
            executes=able.executes,
            max_group_size=able.max_group_size,
            subgroup=able.subgroup,
            codegen=device.target.codegen,
            versions=dict(device.versions),
            features=tuple(sorted(tile_hal.features_of(device))),
            flushes_subnormals=tuple(d.value for d in DType if d in able.flushes_subnormals),
        )


@frozen
class Report:
    """The outcome of a run."""

    run: RunFacts
    devices: tuple[DeviceFacts, ...]
    cases: tuple[Case, ...]
    planned: Mapping[str, Mapping[int, int]]
    """Tests that the suite has, by device and level, whatever the run left out."""

    @property
    def passed(self) -> bool:
        """True when nothing failed, something passed, and there was a device."""
        outcomes = {c.outcome for c in self.cases}
        return bool(self.devices) and "passed" in outcomes and "failed" not in outcomes

    def count(self, device: str, level: int, outcome: str) -> int:
        return sum(c.device == device and c.level == level and c.outcome == outcome for c in self.cases)

    def left_out(self, device: str, level: int) -> int:
        """Tests of a level that did not run: filtered away, above the last level, or after too many that hung."""
        return self.planned.get(device, {}).get(level, 1) - sum(
            (c.device, c.level) == (device, level) for c in self.cases
        )

    def highest_level(self, device: str) -> int | None:
        """The last level that `device` reached: up to it all tests ran, none failed, and something passed on it.

        A level none of whose tests apply is passed over: it neither counts nor holds back.
        """
        reached = None
        for level in LEVELS:
            if self.count(device, level, "failed") or self.left_out(device, level):
                return reached
            if self.count(device, level, "passed"):
                reached = level
        return reached

    def standing(self, device: str) -> str:
        """Where a device stands, in a sentence that does not hide what was left out."""
        reached = self.highest_level(device)
        text = "reached no level" if reached is None else f"reached level {reached}"
        ran = [level for level in LEVELS if any((c.device, c.level) == (device, level) for c in self.cases)]
        short = [level for level in ran if self.left_out(device, level)]
        if not short:
            return text
        missing = sum(self.left_out(device, level) for level in short)
        return f"{text}; {missing} tests of level {', '.join(map(str, short))} did not run, which so does not count"

    def to_json(self) -> str:
        document = {
            "format": FORMAT,
            "hal_api": list(HAL_API),
            "passed": self.passed,
            **asdict(self.run),
            "devices": [self._device(d) for d in self.devices],
            "cases": [asdict(c) for c in self.cases],
        }
        return json.dumps(document, indent=1)

    def _device(self, device: DeviceFacts) -> dict[str, Any]:
        left_out = {str(level): n for level in LEVELS if (n := self.left_out(device.id, level))}
        return {**asdict(device), "level": self.highest_level(device.id), "left_out": left_out}

    def to_badge(self) -> str:
        """A badge as https://shields.io/badges/endpoint-badge reads it: the level that all devices reached."""
        levels = [-1 if (level := self.highest_level(d.id)) is None else level for d in self.devices]
        lowest = min(levels, default=-1)
        message = "no level" if lowest < 0 else f"level {lowest} of {max(LEVELS)}"
        colour = "brightgreen" if lowest == max(LEVELS) else "yellow" if lowest >= 2 else "red"
        return json.dumps({"schemaVersion": 1, "label": "Tile HAL conformance", "message": message, "color": colour})

    def to_markdown(self) -> str:
        lines = [f"# Conformance of `{self.run.backend}`", ""]
        if not self.devices:
            lines += ["No device of this backend was found.", ""]
        for device in self.devices:
            lines += [
                *_facts(device),
                "",
                f"It {self.standing(device.id)}.",
                "",
                *self._levels(device.id),
                "",
                *self._dtypes(device),
                "",
                *self._notes(device),
            ]
        lines += [*self._run(), ""]
        return "\n".join(lines)

    def _run(self) -> Iterable[str]:
        run = self.run
        options = {"examples": run.examples, "seed": run.seed, "filters": " ".join(run.filters)}
        given = "".join(f", {name} {value}" for name, value in options.items() if value not in (None, ""))
        yield f"Run at {run.time} on {run.host}; levels 0 to {run.level}{given}."
        yield ", ".join(f"{n} {v}" for n, v in sorted(run.versions.items())) + "."

    def _levels(self, device: str) -> Iterable[str]:
        yield "| level | | passed | failed | skipped | quirks | not applicable | did not run |"
        yield "|---|---|---|---|---|---|---|---|"
        for level, title in LEVELS.items():
            counts = [*(self.count(device, level, o) for o in OUTCOMES), self.left_out(device, level)]
            yield f"| {level} | {title} | " + " | ".join(map(str, counts)) + " |"

    def _dtypes(self, device: DeviceFacts) -> Iterable[str]:
        yield "| dtype | " + " | ".join(d.value for d in DType) + " |"
        yield "|---|" + "---|" * len(DType)
        yield "| support | " + " | ".join(self._dtype_mark(device, d.value) for d in DType) + " |"

    def _dtype_mark(self, device: DeviceFacts, dtype: str) -> str:
        if dtype not in device.dtypes:
            return "–"
        mine = [c for c in self.cases if c.device == device.id and _mentions(c.name, dtype)]
        if any(c.outcome == "failed" for c in mine):
            return "fails"
        return "yes" if any(c.outcome == "passed" for c in mine) else "untested"

    def _notes(self, device: DeviceFacts) -> list[str]:
        cases = [c for c in self.cases if c.device == device.id]
        lines: list[str] = []
        for quirk, reason in device.quirks.items():
            met = any(matches(quirk, c.name) for c in cases)
            lines.append(f"- quirk `{quirk}`: {reason}" + ("" if met else " (no test that ran is called so)"))
        lines += [f"- failed `{c.name}`: {c.reason}" for c in cases if c.outcome == "failed"]
        return [*lines, ""] if lines else lines


def matches(quirk: str, name: str) -> bool:
    """Whether a quirk is about a case: letter by letter, but for ``*``, which stands for anything."""
    return re.fullmatch(re.escape(quirk).replace(r"\*", ".*"), name) is not None


def _facts(device: DeviceFacts) -> list[str]:
    # Not "asynchronous": ready work may well be done on the calling thread.
    kind = "a `run` that has to wait " + ("returns at once" if device.is_async else "blocks")
    runs = kind if device.executes else "compile only"
    nodes = f"Nodes beyond the core: {', '.join(device.nodes) or 'none'}."
    below = "".join(f"; {name} {number}" for name, number in device.versions.items())
    return [
        f"## `{device.id}` ({device.name})",
        "",
        f"From {device.distribution or 'an uninstalled plugin'}{below}; {runs}; groups of up to {device.max_group_size}; "
        f"sub-groups of {device.subgroup}.",
        "Takes scheduled Stripe." if device.codegen == "stripe" else nodes,
        f"Optional features: {', '.join(device.features) or 'none'}.",
    ]


def _mentions(case: str, dtype: str) -> bool:
    return dtype in case.partition("[")[2].rstrip("]").split("-")


def case_of(report: pytest.TestReport) -> Case | None:
    """What a report of pytest's says; None where it decides nothing, or is of no conformance test."""
    facts = dict(report.user_properties)
    if "tile_level" not in facts or (report.when != "call" and report.outcome == "passed"):
        return None
    outcome: str = report.outcome
    if outcome == "skipped" and hasattr(report, "wasxfail"):
        outcome = "quirk"
    elif outcome == "skipped" and facts.get("tile_applies") is False:
        outcome = "inapplicable"
    device, level, name = str(facts["tile_device"]), int(str(facts["tile_level"])), str(facts["tile_case"])
    return Case(device, level, name, outcome, _reason(report), round(report.duration, 6))


def _reason(report: pytest.TestReport) -> str:
    if report.outcome == "passed":
        return ""
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)
    text = getattr(report, "wasxfail", "") or getattr(crash, "message", "") or str(report.longrepr or "")
    return text.strip().splitlines()[0][:500] if text.strip() else ""
