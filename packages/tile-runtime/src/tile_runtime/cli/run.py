"""`tile run`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tile_runtime.cli.common import (
    Device,
    Fallback,
    Isolate,
    Json,
    Named,
    Plan,
    Reduced,
    Shapes,
    argument_types,
    evaluator,
    random_arrays,
    read_any,
    typed,
)
from tile_runtime.cli.files import load_value, pairs, report_arrays
from tile_runtime.cli.progress import waiting
from tile_runtime.cli.sources import PythonFunction, stated_types


def run(
    file: Named,
    inputs: Annotated[
        list[str], typer.Option("--input", "-i", metavar="NAME=FILE.npy", help="An input: a .npy file or a number.")
    ] = [],  # noqa: B006
    shape: Shapes = [],  # noqa: B006
    seed: Annotated[int, typer.Option("--seed", min=0, help="Which random numbers.")] = 0,
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
    """Run a function on arrays from files, or random ones of the shapes that --shape gives; outputs are saved where --output says, and summarised.

    Random floats are in [0, 1), integers 0 and 1.
    """
    from tile_runtime.arguments import input_type

    found = read_any(file)
    given = pairs(f"function {found.name!r}", "input", found.arguments, inputs)
    values = {n: load_value(n, text) for n, text in given.items()}
    if shape or stated_types(found) or isinstance(found, PythonFunction):
        types = argument_types(found, shape, values)
        values |= zip(types, random_arrays([*types.items()], seed), strict=True)
    function = typed(found, {n: input_type(n, v) for n, v in values.items()})
    files = pairs(f"function {function.name!r}", "output", function.results, outputs)
    with waiting("compiling and running"):
        results = evaluator(device, reduced, plan, fallback, isolate)(function, **values)
    arrays: tuple[Any, ...] = (results,) if len(function.results) == 1 else results
    report_arrays(dict(zip(function.results, arrays, strict=True)), files, json)
