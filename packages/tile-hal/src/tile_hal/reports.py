"""What became of each plugin, as data."""

from __future__ import annotations

import re
from enum import Enum

from tile_ir.frozen import frozen


class TilePluginWarning(UserWarning):
    """A plugin or its hardware was left out; the others work."""


class PluginStatus(Enum):
    OK = "ok"
    BROKEN = "broken"
    """It did not import, its hook raised, or the hook gave no driver."""
    INCOMPATIBLE = "incompatible"
    """It was built for another HAL API."""
    DUPLICATE = "duplicate"
    """Another plugin has the same driver name."""
    LEFT_OUT = "left out"
    """TILE_PLUGINS says so."""


@frozen
class PluginReport:
    """One line of `tile plugins`."""

    entry_point: str
    distribution: str
    version: str
    module: str
    status: PluginStatus
    driver: str | None = None
    """Prefix of its device ids, once known."""
    api: tuple[int, int] | None = None
    message: str = ""
    """What is wrong and which package to upgrade; "" for a plugin that works."""

    @property
    def title(self) -> str:
        """How sentences name it."""
        return f"plugin {self.entry_point!r} of {self.distribution} {self.version}".rstrip()


@frozen
class DoctorReport:
    """What one plugin says of its hardware: what is there, what is missing, which command installs it."""

    plugin: PluginReport
    lines: tuple[str, ...]
    devices: tuple[str, ...]
    """Ids of the devices it has now."""


def plain(name: str) -> str:
    """A distribution's name in one spelling, however it is written."""
    return re.sub(r"[-_.]+", "-", name).lower()
