"""`tile tune`."""

from __future__ import annotations

from typing import Annotated

import typer

from tile_runtime.cli.common import Device, File, Json, Shapes, lowered, print_json, print_table, read_function
from tile_runtime.cli.errors import CommandError


def tune(
    file: File,
    shape: Shapes = [],  # noqa: B006 - typer copies it
    device: Device = None,
    trials: Annotated[int, typer.Option("--trials", min=1, help="Most schedules to measure.")] = 8,
    json: Json = False,
) -> None:
    """Measure several schedules of a function, as Evaluator(tile_trials=N) does, and show which one wins."""
    from tile_runtime.tuning import measure

    base = lowered(read_function(file), shape, device)
    if not base.device.capabilities.executes:
        raise CommandError(f"device {base.device.id} runs nothing, so nothing can be measured")
    rows = measure(base, trials)
    if json:
        print_json([{"changed": dict(t.changed), "seconds": t.seconds if len(rows) > 1 else None} for t in rows])
        return
    if len(rows) == 1:
        print("there is only one schedule to choose from")
        return
    first = next(t.seconds for t in rows if not t.changed)
    cells = [(_name(dict(t.changed)), f"{t.seconds * 1e6:.1f}", f"{first / t.seconds:.2f}") for t in rows]
    print_table(("Schedule", "Best µs", "Speed"), cells)


def _name(changed: dict[str, int]) -> str:
    return ", ".join(f"{n}={v}" for n, v in changed.items()) or "the cost model's choice"
