"""`tile ir`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, cast

import typer

from tile_runtime.cli.common import Device, Named, Plan, Reduced, Shapes, lowered, read_any
from tile_runtime.cli.errors import USAGE, CommandError

if TYPE_CHECKING:
    from tile_lang.ast import Function as Syntax

    from tile_runtime.lowered import Lowered


class Stage(StrEnum):
    """The values that compilation passes through, in order."""

    AST = "ast"
    PROGRAM = "program"
    STRIPE = "stripe"
    SEMTREE = "semtree"
    SOURCE = "source"
    ASM = "asm"


def ir(
    file: Named,
    stage: Annotated[Stage, typer.Option("--stage", help="What to print.")] = Stage.STRIPE,
    after: Annotated[
        str | None,
        typer.Option("--after", metavar="PASS", help="Stripe right after this pass; 'initial' is before all."),
    ] = None,
    shape: Shapes = [],  # noqa: B006 - typer copies it
    device: Device = None,
    plan: Plan = None,
    reduced: Reduced = False,
) -> None:
    """Print a stage of compilation. All but the syntax tree need a --shape for every input."""
    if after is not None and stage is not Stage.STRIPE:
        raise CommandError("--after goes with --stage stripe", USAGE)
    function = read_any(file)
    if stage is Stage.AST:
        syntax: Syntax | None = getattr(function, "syntax", None)
        if syntax is None:
            raise CommandError(f"{file} is no text, so it has no syntax tree", USAGE)
        print("\n".join(_tree(syntax)))
        return
    print(_text(lowered(function, shape, device, reduced, plan), stage, after).rstrip("\n"))


def _text(low: Lowered, stage: Stage, after: str | None) -> str:
    if stage is Stage.PROGRAM:
        import tile_lang

        return tile_lang.print_program(low.program)
    if stage is Stage.STRIPE:
        return str(low.stripe if after is None else low.stripe_after(after))
    if stage is Stage.SEMTREE:
        from tile_ir.semtree.printer import print_function

        kernels = low.kernels.kernels
        return "\n".join(print_function(k.function) for k in kernels if k.function is not None)
    return low.source if stage is Stage.SOURCE else low.asm


def _tree(root: Syntax) -> Iterator[str]:
    """One node a line: class, place, and the fields that are no nodes."""
    from tile_lang.ast import Node

    stack: list[tuple[int, str, object]] = [(0, "", root)]
    while stack:
        depth, label, item = stack.pop()
        pad = "  " * depth + label
        if isinstance(item, Node):
            names = [n for n in cast("tuple[str, ...]", getattr(type(item), "__match_args__", ())) if n != "span"]
            fields = [(n, getattr(item, n)) for n in names]
            plain = " ".join(f"{n}={v!r}" for n, v in fields if not isinstance(v, (Node, tuple)) and v is not None)
            yield f"{pad}{type(item).__name__} {item.span.line}:{item.span.column} {plain}".rstrip()
            stack += [(depth + 1, f"{n}: ", v) for n, v in reversed(fields) if isinstance(v, (Node, tuple)) and v != ()]
        elif isinstance(item, tuple):
            yield pad.rstrip()
            stack += [(depth + 1, "", v) for v in reversed(cast("Sequence[object]", item))]
        else:
            yield f"{pad}{item!r}"
