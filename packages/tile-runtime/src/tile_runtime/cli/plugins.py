"""`tile plugins`."""

from __future__ import annotations

import typer

from tile_runtime.cli.common import Json, print_json, print_table
from tile_runtime.cli.errors import FINDINGS


def plugins(json: Json = False) -> None:
    """List the installed backends and what became of each; exit code 1 when one cannot be used.

    TILE_PLUGINS=-NAME leaves one out, TILE_PLUGINS=NAME,NAME uses only those.
    """
    import tile_hal
    from tile_hal import PluginStatus

    found = tile_hal.plugins()
    rows = [
        {"name": p.entry_point, "distribution": p.distribution, "version": p.version, "module": p.module,
         "api": list(p.api or ()), "status": p.status.value, "message": p.message}
        for p in found
    ]  # fmt: skip
    if json:
        print_json(rows)
    else:
        cells = [
            (
                r["name"],
                f"{r['distribution']} {r['version']}",
                r["module"],
                ".".join(map(str, r["api"])),
                r["status"],
                r["message"],
            )
            for r in rows
        ]
        print_table(("Plugin", "Distribution", "Module", "HAL API", "Status", ""), cells)
    if any(p.status not in (PluginStatus.OK, PluginStatus.LEFT_OUT) for p in found):
        raise typer.Exit(FINDINGS)
