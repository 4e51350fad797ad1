"""`tile run`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, cast
from zipfile import BadZipFile

import numpy as np
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
    print_json,
    print_table,
    read_function,
)
from tile_runtime.cli.errors import USAGE, CommandError

if TYPE_CHECKING:
    from tile_runtime.function import Function


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
    files = _pairs(function, "output", function.outputs, outputs)
    values = {n: _load(n, text) for n, text in _pairs(function, "input", function.inputs, inputs).items()}
    found = evaluator(device, reduced, plan, fallback, isolate)(function, **values)
    arrays = (found,) if len(function.outputs) == 1 else found
    results: dict[str, Any] = dict(zip(function.outputs, arrays, strict=True))
    for name, path in files.items():
        with open(path, "wb") as target:
            np.save(target, results[name], allow_pickle=False)
    rows = [{"name": n, **_summary(r), "file": files.get(n)} for n, r in results.items()]
    if json:
        print_json(rows)
    else:
        print_table(("Output", "dtype", "Shape", "Min", "Mean", "Max", "File"), [_cells(r) for r in rows])


def _pairs(function: Function, kind: str, names: Sequence[str], texts: Sequence[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not value:
            raise CommandError(f"--{kind} {text!r} is not like {names[0] if names else 'NAME'}=file.npy", USAGE)
        if name not in names:
            raise CommandError(f"function {function.name!r} has no {kind} {name!r}; its {kind}s are {', '.join(names)}")
        if name in pairs:
            raise CommandError(f"--{kind} {name!r} is given twice", USAGE)
        pairs[name] = value
    return pairs


def _load(name: str, text: str) -> Any:
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    try:
        found: object = np.load(text, allow_pickle=False)
    except (ValueError, EOFError, BadZipFile) as problem:
        raise CommandError(f"input {name!r}: {text} is no .npy file: {problem}", USAGE) from None
    if not isinstance(found, np.ndarray):
        raise CommandError(
            f"input {name!r}: {text} holds several arrays; save the one that is meant with numpy.save", USAGE
        )
    return cast(object, found)


def _summary(array: Any) -> dict[str, Any]:
    facts: dict[str, Any] = {"dtype": str(array.dtype), "shape": list(array.shape)}
    if not array.size:
        return {**facts, "min": None, "mean": None, "max": None}
    wide = array.astype(np.float64)
    return {**facts, "min": float(wide.min()), "mean": float(wide.mean()), "max": float(wide.max())}


def _cells(row: dict[str, Any]) -> list[object]:
    numbers = ["" if row[k] is None else f"{row[k]:.6g}" for k in ("min", "mean", "max")]
    return [row["name"], row["dtype"], row["shape"], *numbers, row["file"] or ""]
