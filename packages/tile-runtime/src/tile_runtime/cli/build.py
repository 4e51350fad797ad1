"""`tile build`."""

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
    argument_types,
    evaluator,
    print_json,
    print_pairs,
    read_any,
    typed,
)
from tile_runtime.cli.progress import waiting

_OUTPUT = typer.Option(
    "--output", "-o", metavar="OUT", help="Library to write: .so or .dylib (needs a C compiler), or .a."
)
_HEADER = typer.Option("--header", metavar="H", help="C header to write.")
_NAME = typer.Option("--name", metavar="NAME", help="The C function; the file's name otherwise.")
_TARGET = typer.Option(
    "--target",
    "-t",
    metavar="TARGET",
    help="What runs it: host (default), baseline, x86-64-v2, -v3 or -v4, aarch64-linux.",
)
_THREADS = typer.Option("--threads", min=1, help="Threads that a call may use.")


def build(
    file: Named,
    output: Annotated[Path, _OUTPUT],
    shape: Shapes = [],  # noqa: B006 - typer copies it
    header: Annotated[Path | None, _HEADER] = None,
    name: Annotated[str | None, _NAME] = None,
    device: Device = None,
    target: Annotated[str | None, _TARGET] = None,
    threads: Annotated[int, _THREADS] = 1,
    plan: Plan = None,
    reduced: Reduced = False,
    json: Json = False,
) -> None:
    """Write a function as a library for C, which needs no Python."""
    from tile_runtime.tracing import place

    found = read_any(file)
    types = argument_types(found, shape)
    function = typed(found, types)
    chosen = evaluator(device, reduced, plan)
    arguments = [place(n, t) for n, t in types.items()]
    with waiting("compiling"):
        made = chosen.build(
            function, *arguments, output=output, header=header, name=name, target=target, threads=threads
        )
    facts = {"function": made.prototype, "target": made.target, "files": [str(f) for f in made.files]}
    if json:
        print_json(facts)
    else:
        print_pairs({**facts, "files": ", ".join(facts["files"])})
