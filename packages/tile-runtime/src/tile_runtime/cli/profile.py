"""`tile profile`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tile_runtime.cli.common import (
    Device,
    Json,
    Named,
    Plan,
    Reduced,
    Shapes,
    lowered,
    print_json,
    random_inputs,
    read_any,
)
from tile_runtime.cli.errors import CommandError
from tile_runtime.cli.progress import waiting


def profile(
    file: Named,
    shape: Shapes = [],  # noqa: B006 - typer copies it
    device: Device = None,
    calls: Annotated[
        int, typer.Option("--calls", min=1, help="How many calls to measure, after one that is not.")
    ] = 10,
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace", metavar="OUT", help="Also write a timeline that ui.perfetto.dev and chrome://tracing show."
        ),
    ] = None,
    plan: Plan = None,
    reduced: Reduced = False,
    json: Json = False,
) -> None:
    """Say where time goes: each kernel of some calls on random inputs, with its share of the machine's peak."""
    from tile_runtime.measuring.profiling import profile as profiled
    from tile_runtime.tensor import asarray

    with waiting("compiling"):
        low = lowered(read_any(file), shape, device, reduced, plan)
        executable = low.executable
    if not low.device.capabilities.executes:
        raise CommandError(f"device {low.device.id} runs nothing, so nothing can be measured")
    tensors = [asarray(array, low.device) for array in random_inputs(low.program)]
    out = executable.run_tensors(tensors, [None] * len(executable.outputs))
    with waiting("measuring"), profiled() as found:
        for _ in range(calls):
            for tensor in executable.run_tensors(tensors, out):
                tensor.wait()
    if trace is not None:
        found.to_trace(trace)
    print_json(found.to_dict()) if json else print(found.table())
