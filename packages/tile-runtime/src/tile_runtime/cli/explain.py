"""`tile explain`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tile_runtime.cli.common import (
    Device,
    Fallback,
    Json,
    Named,
    Plan,
    Reduced,
    Shapes,
    lowered,
    print_json,
    read_any,
    write_text,
)
from tile_runtime.cli.errors import CommandError
from tile_runtime.cli.progress import waiting


def explain(
    file: Named,
    shape: Shapes = [],  # noqa: B006 - typer copies it
    device: Device = None,
    candidates: Annotated[
        bool, typer.Option("--candidates", help="Also the plans that the cost model weighed.")
    ] = False,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="OUT", help="Write one self-contained HTML page instead.")
    ] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Run the kernels, and show measured beside predicted times.")
    ] = False,
    plan: Plan = None,
    reduced: Reduced = False,
    fallback: Fallback = None,
    json: Json = False,
) -> None:
    """Say what each kernel does, how it was planned, what it costs, and where compile time went."""
    low = lowered(read_any(file), shape, device, reduced, plan, fallback)
    if measure and not low.device.capabilities.executes:
        raise CommandError(f"device {low.device.id} runs nothing, so nothing can be measured")
    with waiting("compiling and measuring" if measure else "compiling"):
        text = (
            low.explain_html(measure=measure)
            if html is not None
            else low.explain(candidates=candidates, measure=measure)
        )
    if html is not None:
        write_text(html, text)
    if json:
        document = low.report(candidates=candidates, measure=measure).to_dict()
        document |= {"device": low.device.id, "arenas": list(low.kernels.arenas)}
        print_json(document)
    elif html is None:
        print(text)
