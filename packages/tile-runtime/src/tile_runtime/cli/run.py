"""`tile run`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tile_runtime.cli.common import (
    Device,
    Fallback,
    File,
    Isolate,
    Json,
    Plan,
    Reduced,
    evaluator,
    read_function,
)
from tile_runtime.cli.files import load_value, pairs, report_arrays


def run(
    file: File,
    inputs: Annotated[
        list[str], typer.Option("--input", "-i", metavar="NAME=FILE.npy", help="An input: a .npy file or a number.")
    ] = [],  # noqa: B006
    outputs: Annotated[
        list[str], typer.Option("--output", "-o", metavar="NAME=FILE.npy", help="Where to save an output.")
    ] = [],  # noqa: B006
    device: Device = None,
    plan: Plan = None,
    reduced: Reduced = False,
    fallback: Fallback = None,
    isolate: Isolate = False,
    json: Json = False,
) -> None:
    """Run a function on arrays from files; outputs are saved where --output says, and summarised."""
    function = read_function(file)
    files = pairs(f"function {function.name!r}", "output", function.outputs, outputs)
    given = pairs(f"function {function.name!r}", "input", function.inputs, inputs)
    values = {n: load_value(n, text) for n, text in given.items()}
    found = evaluator(device, reduced, plan, fallback, isolate)(function, **values)
    arrays = (found,) if len(function.outputs) == 1 else found
    results: dict[str, Any] = dict(zip(function.outputs, arrays, strict=True))
    report_arrays(results, files, json)
