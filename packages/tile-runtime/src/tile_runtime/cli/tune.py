"""`tile tune`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tile_runtime.cli.common import (
    Device,
    Json,
    Named,
    Reduced,
    Shapes,
    lowered,
    print_json,
    print_table,
    read_any,
    write_text,
)  # fmt: skip
from tile_runtime.cli.errors import CommandError

if TYPE_CHECKING:
    from tile_runtime.lowered import Lowered
    from tile_runtime.measuring.tuning import Trial


def tune(
    file: Named,
    shape: Shapes = [],  # noqa: B006 - typer copies it
    device: Device = None,
    trials: Annotated[int, typer.Option("--trials", min=1, help="Most plans of each kernel to measure.")] = 8,
    save: Annotated[
        Path | None, typer.Option("--save", metavar="OUT", help="Write the fastest plans, as `tile plan` prints them.")
    ] = None,
    reduced: Reduced = False,
    json: Json = False,
) -> None:
    """Measure several plans of each kernel, as Evaluator(tile_trials=N) does, keep the fastest and show which wins."""
    base = lowered(read_any(file), shape, device, reduced)
    if not base.device.capabilities.executes:
        raise CommandError(f"device {base.device.id} runs nothing, so nothing can be measured")
    best, rows = _measured(base, trials)
    if save is not None:
        write_text(save, str(best.plans))
    if json:
        print_json([_record(t) for t in rows])
    elif not rows:
        print("there is only one plan for each kernel")
    else:
        _show(rows)


def _measured(base: Lowered, count: int) -> tuple[Lowered, Sequence[Trial]]:
    """The best program and all trials behind a progress bar; Ctrl-C keeps what has been measured."""
    from rich.console import Console
    from rich.progress import Progress

    from tile_runtime.measuring.tuning import best_of, measure

    seen: list[Trial] = []
    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("compiling", total=None)

        def watch(trials: Sequence[Trial], done: int, total: int) -> None:
            seen[:] = trials
            progress.update(bar, total=total, completed=done, description=_progress(trials))

        try:
            tuned = measure(base, count, watch)
            return tuned.lowered, tuned.trials
        except KeyboardInterrupt:
            if not any(t.measured for t in seen):
                raise CommandError("interrupted before any plan was measured") from None
            return best_of(base, seen), sorted(seen, key=lambda t: (t.kernel, t.seconds))


def _progress(trials: Sequence[Trial]) -> str:
    """What has been gained so far, over all kernels."""
    own = sum(t.seconds for t in trials if t.own and t.measured)
    kernels = {t.kernel for t in trials}
    fastest = sum(min(t.seconds for t in trials if t.kernel == k and t.measured) for k in kernels if own)
    return f"best {fastest * 1e6:.1f} µs, {own / fastest:.2f} times as fast" if own and fastest else "measuring"


def _record(trial: Trial) -> dict[str, Any]:
    from tile_opt.plan.text import print_plans

    return {
        "kernel": trial.kernel,
        "plan": print_plans({trial.kernel: trial.plan}),
        "own": trial.own,
        "seconds": trial.seconds if trial.measured else None,
        "failure": trial.failure,
    }


def _show(rows: Sequence[Trial]) -> None:
    from tile_opt.plan.text import brief

    first = {t.kernel: t.seconds for t in rows if t.own}
    print_table(
        ("Kernel", "Plan", "Best µs", "Speed"),
        [
            (
                t.kernel,
                f"{brief(t.plan)}{' (the compiler’s choice)' if t.own else ''}",
                _microseconds(t),
                _speed(first, t),
            )
            for t in rows
        ],
    )


def _microseconds(trial: Trial) -> str:
    return "failed" if trial.failure else f"{trial.seconds * 1e6:.1f}" if trial.measured else "?"


def _speed(first: dict[str, float], trial: Trial) -> str:
    return f"{first[trial.kernel] / trial.seconds:.2f}" if trial.measured else ""
