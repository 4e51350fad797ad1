"""`tile tune`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from tile_runtime.cli.common import Device, File, Json, Reduced, Shapes, lowered, print_json, print_table, read_function
from tile_runtime.cli.errors import CommandError

if TYPE_CHECKING:
    from tile_runtime.lowered import Lowered
    from tile_runtime.tuning import Trial

UNMEASURED = float("inf")


def tune(
    file: File,
    shape: Shapes = [],  # noqa: B006 - typer copies it
    device: Device = None,
    trials: Annotated[int, typer.Option("--trials", min=1, help="Most schedules to measure.")] = 8,
    reduced: Reduced = False,
    json: Json = False,
) -> None:
    """Measure several schedules of a function, as Evaluator(tile_trials=N) does, and show which one wins."""
    base = lowered(read_function(file), shape, device, reduced)
    if not base.device.capabilities.executes:
        raise CommandError(f"device {base.device.id} runs nothing, so nothing can be measured")
    rows = _measured(base, trials)
    if json:
        print_json(
            [{"changed": dict(t.changed), "seconds": t.seconds if t.seconds < UNMEASURED else None} for t in rows]
        )
        return
    if len(rows) == 1:
        print("there is only one schedule to choose from")
        return
    if rows[0].seconds == UNMEASURED:
        raise CommandError("interrupted before any schedule was measured")
    first = next(t.seconds for t in rows if not t.changed)
    cells = [(_name(t.changed), _microseconds(t), f"{first / t.seconds:.2f}") for t in rows]
    print_table(("Schedule", "Best µs", "Speed"), cells)


def _measured(base: Lowered, count: int) -> list[Trial]:
    """The trials, fastest first, behind a progress bar; Ctrl-C keeps those that have been measured."""
    from rich.console import Console
    from rich.progress import Progress

    from tile_runtime.tuning import ROUNDS, measure

    seen: list[Trial] = []
    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("measuring", total=None)

        def watch(trials: Sequence[Trial]) -> None:
            seen[:] = trials
            fastest = min(trials, key=lambda t: t.seconds)
            text = f"best {_microseconds(fastest)} µs: {_name(fastest.changed)}"
            progress.update(bar, total=len(trials) * (ROUNDS + 1), advance=1, description=text)

        try:
            return measure(base, count, watch)
        except KeyboardInterrupt:
            if not seen:
                raise
            return sorted(seen, key=lambda t: t.seconds)


def _microseconds(trial: Trial) -> str:
    return "failed" if trial.failure else f"{trial.seconds * 1e6:.1f}" if trial.seconds < UNMEASURED else "?"


def _name(changed: Mapping[str, int]) -> str:
    return ", ".join(f"{n}={v}" for n, v in changed.items()) or "the cost model's choice"
