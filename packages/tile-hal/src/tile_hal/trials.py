"""Trying plugins from elsewhere in a process of their own, before this one imports them.

Importing a plugin and looking for its devices runs code of a vendor's, which may hang, crash or end the process. What becomes
of that is found out in another process, once for each version of a distribution (and each change of its Python files), and
remembered in the disk cache. What comes with Tile is trusted, and never tried.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from enum import Enum
from functools import cache
from typing import Any, cast

from tile_ir.diagnostics import TileDeviceError
from tile_ir.frozen import frozen
from tile_ir.settings import Settings

from tile_hal.disk_cache import PLUGINS, DiskCache, disk_cache, sources
from tile_hal.interfaces import HAL_API
from tile_hal.reports import PluginReport, plain

GROUP = "tile_hal"
"""Entry point group of plugins."""
HOUSE = "tile-runtime"
"""The distribution whose needs come with Tile: their plugins are trusted, as is this package's own."""
FAILED_SECONDS = 3600.0
"""How long a failure is remembered: the next look at a device may find mended hardware."""
_SHOWN = 80
"""Characters of what a plugin prints."""


class Stage(Enum):
    """What is tried."""

    IMPORT = "when it is imported"
    PROBE = "when its devices are looked for"
    DOCTOR = "when it is asked what it finds"


@frozen
class Verdict:
    """What became of a plugin in a process of its own."""

    problem: str = ""
    """How the process failed; "" when it did not, whatever the plugin raised: that can do no harm here."""
    printed: str = ""
    """The beginning of what was written to standard output."""
    lines: tuple[str, ...] = ()
    """What the driver's own check says."""


class Trials:
    """Tries plugins, and remembers what became of them and who had a driver's name first."""

    def __init__(self) -> None:
        self.try_again = False
        """Whether plugins that failed are tried again, however short ago that was."""
        self._tried = False

    def trusts(self, report: PluginReport) -> bool:
        """Whether a plugin comes with Tile."""
        return plain(report.distribution) in _house()

    def verdict(self, report: PluginReport, stage: Stage) -> Verdict:
        """What became of a plugin when it was tried: just now, or before."""
        if self.trusts(report):
            return Verdict()
        memory = _Memory(f"{stage.name} {_identity(report)}")
        known = memory.recall() if stage is not Stage.DOCTOR else None
        if known is not None and not self._is_outdated(known):
            return Verdict(known["problem"], known["printed"])
        try:
            found = _try(report, stage)
        except TileDeviceError:  # this machine starts no processes
            return Verdict()
        self._tried = True
        if stage is not Stage.DOCTOR:
            memory.keep({**asdict(found), "time": time.time()})
        return found

    def _is_outdated(self, known: dict[str, Any]) -> bool:
        if known.keys() != {"problem", "printed", "lines", "time"}:
            return True
        return bool(known["problem"]) and (self.try_again or abs(time.time() - known["time"]) > FAILED_SECONDS)

    def owner(self, driver: str, claims: list[PluginReport]) -> PluginReport | None:
        """Whose a driver's name is: Tile's own, else whose it was first on this machine; None where nobody knows."""
        ours = [claim for claim in claims if self.trusts(claim)]
        if ours:
            return ours[0]
        if len(claims) > 1:
            first = (_Memory(f"driver {driver}").recall() or {}).get("distribution")
            return next((claim for claim in claims if claim.distribution == first), None)
        if self._tried:
            _Memory(f"driver {driver}").keep({"distribution": claims[0].distribution})
        return claims[0]


class _Memory:
    """A document in the disk cache."""

    def __init__(self, subject: str) -> None:
        settings = Settings.from_environment()
        self._key = hashlib.sha256(f"plugins {sys.prefix} {subject}".encode()).hexdigest()
        self._reads: DiskCache | None = None if settings.cache == "off" else disk_cache(settings, PLUGINS)
        self._writes = settings.cache == "on"

    def recall(self) -> dict[str, Any] | None:
        """What was kept; None for nothing, or for nothing of ours."""
        data = self._reads.read(self._key) if self._reads is not None else None
        with suppress(ValueError):
            found: Any = json.loads(data or b"null")
            return cast("dict[str, Any]", found) if isinstance(found, dict) else None
        return None

    def keep(self, document: dict[str, Any]) -> None:
        if self._reads is not None and self._writes:
            self._reads.write(self._key, json.dumps(document).encode())


def _identity(report: PluginReport) -> str:
    """All that what became of a plugin depends on."""
    stamp = sources(report.module.partition(":")[0].partition(".")[0])
    named = f"{report.distribution} {report.version} {report.entry_point} {report.module}"
    return f"{named} {stamp} {HAL_API} {sys.version}"


def _try(report: PluginReport, stage: Stage) -> Verdict:
    from tile_hal.isolation.process import run

    seconds = Settings.from_environment().plugin_seconds
    outcome = run("tile_hal.plugin_process", stage.name, report.entry_point, report.module, seconds=seconds, apart=True)
    if outcome.problem or not outcome.output:
        return Verdict(f"{stage.value}, the process {outcome.problem or 'ended without an answer'}")
    found: dict[str, Any] = json.loads(outcome.output)
    return Verdict(found["problem"], found["printed"][:_SHOWN], tuple(found["lines"]))


@cache
def _house() -> frozenset[str]:
    """Distributions that come with Tile."""
    from importlib.metadata import PackageNotFoundError, requires

    try:
        needs = requires(HOUSE) or ()
    except PackageNotFoundError:
        needs = ()
    names = (re.match(r"[\w.-]+", need) for need in needs)
    return frozenset({"tile-hal", *(plain(name[0]) for name in names if name)})
