"""What commands share: options, reading functions and shapes, tables and JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tile_runtime.cli.errors import USAGE, CommandError
from tile_runtime.cli.sources import read_any as read_any
from tile_runtime.cli.sources import read_function as read_function
from tile_runtime.cli.sources import standard_input, stated_types, typed
from tile_runtime.tables import print_table as print_table

if TYPE_CHECKING:
    from tile_ir.program.nodes import Program, TensorType
    from tile_opt.plan.text import Plans

    from tile_runtime.cli.sources import PythonFunction
    from tile_runtime.evaluator import Evaluator
    from tile_runtime.function import BaseFunction
    from tile_runtime.lowered import Lowered

File = Annotated[Path, typer.Argument(metavar="FILE", help="Tile source; '-' is standard input.")]
Named = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="Tile source, '-' for standard input, or a function of Python: module:name, file.py:name. That is a Tile function, one of "
        "arrays (traced for the shapes), or one without arguments that returns a composition.",
    ),
]
Device = Annotated[
    str | None, typer.Option("--device", "-d", help="Device id, such as llvm:0; $TILE_DEVICE or the best otherwise.")
]
Shapes = Annotated[list[str], typer.Option("--shape", "-s", metavar="NAME=DTYPE[SIZES]", help="Type of an input, such as A=float32[3,4]; the dtype is float32 when left out.")]  # fmt: skip
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Reduced = Annotated[
    bool, typer.Option("--reduced-precision", help="Allow matrix instructions: TF32, bfloat16 products.")
]
Fallback = Annotated[
    str | None,
    typer.Option(
        "--fallback", metavar="DEVICE", help="Device that runs the steps which the other one lacks something for."
    ),
]
Isolate = Annotated[
    bool, typer.Option("--isolate", help="Run the device's driver in a worker process: a crash is an error message.")
]
Plan = Annotated[
    Path | None,
    typer.Option("--plan", metavar="PLAN", help="Plans to use, as `tile plan` prints them; '-' is standard input."),
]
Wrt = Annotated[list[str], typer.Option("--wrt", metavar="NAME", help="Input to differentiate by; may be repeated.")]

_SHAPE = re.compile(r"\s*(?P<name>\w+'?)\s*=\s*(?P<dtype>[a-z]\w*)?\s*(\[(?P<sizes>[\d\s,]*)\])?\s*")


def parse_shapes(texts: Sequence[str]) -> dict[str, TensorType]:
    """``A=float32[3,4]`` as input types by name; CommandError for anything else."""
    from tile_ir.program.nodes import TensorType

    from tile_runtime.arrays import dtype_of

    types: dict[str, TensorType] = {}
    for text in texts:
        found = _SHAPE.fullmatch(text)
        if found is None or not (found["dtype"] or found["sizes"] is not None):
            raise CommandError(f"--shape {text!r} is not like A=float32[3,4] (or A=float32 for a scalar)", USAGE)
        try:
            sizes = tuple(int(n) for n in (found["sizes"] or "").split(",") if n.strip())
        except ValueError as problem:  # a blank inside a number, or thousands of digits
            raise CommandError(
                f"--shape {text[:60]!r} has a size that is no number: {str(problem)[:80]}", USAGE
            ) from None
        types[found["name"]] = TensorType(dtype_of(found["dtype"] or "float32"), sizes)
    return types


def argument_types(
    function: BaseFunction | PythonFunction, shapes: Sequence[str], given: Collection[str] = ()
) -> dict[str, TensorType]:
    """The types of the arguments but those that are `given`: by --shape, or as the function states them.

    CommandError names the inputs that have none.
    """
    stated, types, names = stated_types(function), parse_shapes(shapes), function.arguments
    unknown = [n for n in types if n not in names]
    missing = [n for n in names if n not in types and n not in stated and n not in given]
    if unknown:
        raise CommandError(f"no input is called {', '.join(unknown)}; the inputs are {', '.join(names)}")
    if missing:
        options = " ".join(f"--shape '{n}=float32[…]'" for n in missing)
        raise CommandError(f"the types of {', '.join(missing)} are needed: {options}", USAGE)
    return {n: types[n] if n in types else stated[n] for n in names if n not in given}


def placeholders(function: BaseFunction | PythonFunction, shapes: Sequence[str]) -> dict[str, Any]:
    """Placeholders for every argument of `function`; CommandError names those that have no --shape."""
    from tile_runtime.tracing import place

    return {n: place(n, t) for n, t in argument_types(function, shapes).items()}


def lowered(
    function: BaseFunction | PythonFunction,
    shapes: Sequence[str],
    device: str | None,
    reduced: bool = False,
    plan: Path | None = None,
    fallback: str | None = None,
    isolate: bool = False,
) -> Lowered:
    """The stages of compiling `function` for inputs of these shapes, by `evaluator` with these options."""
    from tile_runtime.tracing import place

    types = argument_types(function, shapes)
    symbols = [place(n, t) for n, t in types.items()]
    return evaluator(device, reduced, plan, fallback, isolate).lower(typed(function, types), *symbols)


def evaluator(
    device: str | None,
    reduced: bool = False,
    plan: Path | None = None,
    fallback: str | None = None,
    isolate: bool = False,
) -> Evaluator:
    """An evaluator with these options; the plans are those of a file, or of standard input."""
    from tile_runtime.evaluator import Evaluator

    return Evaluator(device, reduced_precision=reduced, plans=_plans(plan), fallback=fallback, isolate=isolate)


def _plans(file: Path | None) -> Path | Plans | None:
    from tile_ir.diagnostics import Source

    if file is None or str(file) != "-":
        return file
    from tile_opt.plan.text import parse_plans

    return parse_plans(Source(standard_input(), "<stdin>"))


def random_inputs(program: Program) -> list[Any]:
    """Arrays for the inputs of a program; the same in every run."""
    return random_arrays([(p.name, p.type) for p in program.inputs])


def random_arrays(types: Sequence[tuple[str, TensorType]], seed: int = 0) -> list[Any]:
    """Arrays of these types: floats in [0, 1), integers 0 and 1; the same for the same seed."""
    import numpy as np

    from tile_runtime.arrays import numpy_dtype

    rng = np.random.default_rng(seed)
    made: list[Any] = []
    for name, type_ in types:
        dtype = numpy_dtype(f"input {name!r}", type_.dtype)
        drawn = rng.random(type_.shape, np.float32) if type_.dtype.is_float else rng.integers(0, 2, type_.shape)
        made.append(np.asarray(drawn).astype(dtype))
    return made


def write_text(path: Path, text: str) -> None:
    """A file of UTF-8 text; CommandError when it cannot be written."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}") from error


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    print(json.dumps(value, indent=2))


def print_pairs(pairs: Mapping[str, object]) -> None:
    """``name: value`` lines."""
    width = max(len(name) for name in pairs) + 1
    for name, value in pairs.items():
        print(f"{name + ':':<{width}} {value}")
