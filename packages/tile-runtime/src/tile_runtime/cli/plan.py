"""`tile plan`."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer
from tile_ir.diagnostics import Source, TileError

from tile_runtime.cli.common import (
    Device,
    Json,
    Named,
    Reduced,
    Shapes,
    lowered,
    print_json,
    print_table,
    random_inputs,
    read_any,
    write_text,
)
from tile_runtime.cli.errors import USAGE, CommandError
from tile_runtime.cli.progress import waiting

if TYPE_CHECKING:
    from tile_runtime.lowered import Lowered


def plan(
    file: Named,
    shape: Shapes = [],  # noqa: B006 - typer copies it
    device: Device = None,
    use: Annotated[
        Path | None,
        typer.Option(
            "--use", "--plan", metavar="PLAN", help="Plans that go before the compiler's; '-': standard input."
        ),
    ] = None,
    edit: Annotated[bool, typer.Option("--edit", help="Open the plans in $EDITOR first.")] = False,
    save: Annotated[
        Path | None, typer.Option("--save", metavar="OUT", help="Write the plans to a file instead of printing them.")
    ] = None,
    time: Annotated[
        bool, typer.Option("--time", help="Run with the plans and with the compiler's own, compare results and times.")
    ] = False,
    reduced: Reduced = False,
    json: Json = False,
) -> None:
    """Print the plan of each kernel: every decision about how it runs, as text that can be changed and used again."""
    with waiting("compiling"):
        low = lowered(read_any(file), shape, device, reduced, use)
        _ = low.plans
    if not low.plans:
        raise CommandError(f"device {low.device.id} has no plan for any kernel of this function")
    if edit:
        low = _edited(low)
    if save is not None:
        write_text(save, str(low.plans))
    if time:
        _compare(low, json)
    elif json:
        print_json({"device": low.device.id, "plans": {k: low.plans.text(k) for k in low.plans}})
    elif save is None:
        print(str(low.plans).rstrip("\n"))


def _edited(low: Lowered) -> Lowered:
    """`low` with its plans as they leave the editor; mistakes are shown, and may be mended."""
    from tile_opt.plan.text import parse_plans

    text = str(low.plans)
    while True:
        text = _editor(text)
        try:
            made = low.planned(parse_plans(Source(text, "<edited>")))
            _ = made.compiled
            return made
        except TileError as problem:
            if not (sys.stdin.isatty() and sys.stderr.isatty()):
                raise
            print(problem, file=sys.stderr)
            typer.confirm("Edit again?", default=True, abort=True, err=True)


def _editor(text: str) -> str:
    """`text` as the user's editor leaves it."""
    command = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ("notepad" if os.name == "nt" else "vi")
    with TemporaryDirectory() as folder:
        path = Path(folder) / "edited.plan"
        path.write_text(text, encoding="utf-8")
        try:
            done = subprocess.run([*shlex.split(command), str(path)], check=False)
        except (OSError, ValueError) as problem:
            raise CommandError(f"the editor {command!r} cannot be started: {problem}", USAGE) from None
        if done.returncode:
            raise CommandError(f"the editor {command!r} failed, so nothing is changed")
        return path.read_text(encoding="utf-8")


def _compare(low: Lowered, json: bool) -> None:
    from tile_runtime.measuring.measure import kernel_seconds

    if not low.device.capabilities.executes:
        raise CommandError(f"device {low.device.id} runs nothing, so nothing can be measured")
    own = low.planned({})
    with waiting("measuring"):
        times, others = kernel_seconds(low), kernel_seconds(own)
        difference = _difference(low, own)
    if json:
        print_json({"device": low.device.id, "seconds": times, "own_seconds": others, "largest_difference": difference})
        return
    names = [*others, *(n for n in times if n not in others)]
    print_table(
        ("Kernel", "These plans µs", "Compiler's own µs"),
        [(name or "(copies)", _microseconds(times, name), _microseconds(others, name)) for name in names],
    )
    print(f"All kernels: {sum(others.values()) / sum(times.values()):.2f} times as fast as the compiler's own plans")
    print("Results: the same" if not difference else f"Results: differ by at most {difference:.2g}")


def _microseconds(times: dict[str, float], name: str) -> str:
    return f"{times[name] * 1e6:.1f}" if name in times else "–"


def _difference(low: Lowered, own: Lowered) -> float:
    """The largest difference between two compilations of one program, relative to the largest result; 0: equal bits."""
    import numpy as np

    inputs = random_inputs(low.program)
    worst = 0.0
    pairs: Any = zip(low.executable.run_arrays(inputs), own.executable.run_arrays(inputs), strict=True)
    for mine, other in pairs:
        if mine.tobytes() != other.tobytes():
            a, b = mine.astype(np.float64), other.astype(np.float64)
            scale = np.max(np.abs(b), initial=0.0, where=np.isfinite(b)) or 1.0
            gap = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
            worst = max(worst, float(np.max(gap, initial=0.0)) / float(scale))
    return worst
