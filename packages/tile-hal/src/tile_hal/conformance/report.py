"""What a conformance run found: per device and level, as JSON and as a Markdown support table."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING

from tile_ir.dtype import DType

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

FORMAT = 1
"""Version of the JSON document."""


@dataclass(frozen=True, slots=True)
class Case:
    """One test on one device; `outcome` is one of OUTCOMES."""

    device: str
    level: int
    name: str
    outcome: str
    reason: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What the report says of a device besides outcomes."""

    id: str
    name: str
    driver: str
    distribution: str
    dtypes: tuple[str, ...]
    nodes: tuple[str, ...]
    quirks: dict[str, str]
    is_async: bool
    executes: bool
    max_group_size: int
    subgroup: int
    codegen: str = "semtree"

    @staticmethod
    def of(device: Device) -> DeviceFacts:
        driver = device.id.partition(":")[0]
        owner = next((p for p in tile_hal.plugins() if p.driver == driver), None)
        able = device.capabilities
        return DeviceFacts(
            id=device.id,
            name=device.name,
            driver=driver,
            distribution=f"{owner.distribution} {owner.version}".strip() if owner else "",
            dtypes=tuple(d.value for d in DType if d in able.dtypes),
            nodes=tuple(sorted(able.nodes)),
            quirks=dict(able.quirks),
            is_async=able.is_async,
            executes=able.executes,
            max_group_size=able.max_group_size,
            subgroup=able.subgroup,
            codegen=device.target.codegen,
        )


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of a run."""

    backend: str
    devices: tuple[DeviceFacts, ...]
    cases: tuple[Case, ...]
    host: str = field(default_factory=platform.platform)
    versions: dict[str, str] = field(default_factory=lambda: {n: version(n) for n in ("tile-hal", "tile-ir")})

    @property
    def passed(self) -> bool:
        """True when nothing failed, something passed, and there was a device."""
        outcomes = {c.outcome for c in self.cases}
        return bool(self.devices) and "passed" in outcomes and "failed" not in outcomes

    def count(self, device: str, level: int, outcome: str) -> int:
        return sum(c.device == device and c.level == level and c.outcome == outcome for c in self.cases)

    def highest_level(self, device: str) -> int | None:
        """The last rung that `device` reached: no failures up to there, and something passed on it.

        A level none of whose tests apply (or can run) is passed over: it neither counts nor holds back.
        """
        reached = None
        for level in LEVELS:
            if self.count(device, level, "failed"):
                return reached
            if self.count(device, level, "passed"):
                reached = level
        return reached

    def to_json(self) -> str:
        document = {
            "format": FORMAT,
            "hal_api": list(HAL_API),
            "backend": self.backend,
            "passed": self.passed,
            "host": self.host,
            "versions": self.versions,
            "devices": [{**asdict(d), "level": self.highest_level(d.id)} for d in self.devices],
            "cases": [asdict(c) for c in self.cases],
        }
        return json.dumps(document, indent=1)

    def to_markdown(self) -> str:
        lines = [f"# Conformance of `{self.backend}`", ""]
        if not self.devices:
            lines += ["No device of this backend was found.", ""]
        for device in self.devices:
            lines += [
                *_facts(device),
                "",
                *self._levels(device.id),
                "",
                *self._dtypes(device),
                "",
                *self._notes(device),
            ]
        lines.append(f"Host: {self.host}. " + ", ".join(f"{n} {v}" for n, v in sorted(self.versions.items())) + ".")
        return "\n".join(lines) + "\n"

    def _levels(self, device: str) -> Iterable[str]:
        yield "| level | | passed | failed | skipped | quirks | not applicable |"
        yield "|---|---|---|---|---|---|---|"
        for level, title in LEVELS.items():
            counts = [self.count(device, level, o) for o in OUTCOMES]
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
        lines = [f"- quirk `{name}`: {reason}" for name, reason in device.quirks.items()]
        lines += [
            f"- failed `{c.name}`: {c.reason}" for c in self.cases if c.device == device.id and c.outcome == "failed"
        ]
        return [*lines, ""] if lines else lines


def _facts(device: DeviceFacts) -> list[str]:
    # Not "asynchronous": ready work may well be done on the calling thread.
    kind = "a `run` that has to wait " + ("returns at once" if device.is_async else "blocks")
    runs = kind if device.executes else "compile only"
    nodes = f"Nodes beyond the core: {', '.join(device.nodes) or 'none'}."
    return [
        f"## `{device.id}` ({device.name})",
        "",
        f"From {device.distribution or 'an uninstalled plugin'}; {runs}; groups of up to {device.max_group_size}; "
        f"sub-groups of {device.subgroup}.",
        "Takes scheduled Stripe." if device.codegen == "stripe" else nodes,
    ]


def _mentions(case: str, dtype: str) -> bool:
    return dtype in case.partition("[")[2].rstrip("]").split("-")


class Recorder:
    """Collects pytest's outcomes; survives pytest-xdist, where reports come from other processes."""

    def __init__(self, selection: tuple[str, tuple[Device, ...]]) -> None:
        self.backend, self.devices = selection
        self._cases: dict[tuple[str, str, int], Case] = {}

    def header(self) -> list[str]:
        names = ", ".join(f"{d.id} ({d.name})" for d in self.devices) or "no device"
        return [f"tile backend {self.backend}: {names}; HAL API {HAL_API[0]}.{HAL_API[1]}"]

    def add(self, report: pytest.TestReport) -> None:
        facts = dict(report.user_properties)
        if "tile_level" not in facts or (report.when != "call" and report.outcome == "passed"):
            return
        outcome: str = report.outcome
        if outcome == "skipped" and hasattr(report, "wasxfail"):
            outcome = "quirk"
        elif outcome == "skipped" and facts.get("tile_applies") is False:
            outcome = "inapplicable"
        device, level, name = str(facts["tile_device"]), int(str(facts["tile_level"])), str(facts["tile_case"])
        case = Case(device, level, name, outcome, _reason(report), round(report.duration, 6))
        key = (device, name, level)
        # A failing teardown does not turn back into a pass.
        if key not in self._cases or outcome == "failed":
            self._cases[key] = case

    def report(self) -> Report:
        facts = tuple(DeviceFacts.of(d) for d in self.devices)
        return Report(self.backend, facts, tuple(sorted(self._cases.values(), key=lambda c: (c.device, c.level))))


def _reason(report: pytest.TestReport) -> str:
    if report.outcome == "passed":
        return ""
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)
    text = getattr(report, "wasxfail", "") or getattr(crash, "message", "") or str(report.longrepr or "")
    return text.strip().splitlines()[0][:300] if text.strip() else ""
