"""`tile grad`."""

from __future__ import annotations

from tile_runtime.cli.common import File, Shapes, Wrt, placeholders, read_function


def grad(
    file: File,
    wrt: Wrt = [],  # noqa: B006 - typer copies it
    shape: Shapes = [],  # noqa: B006
) -> None:
    """Print the program that computes gradients: from the inputs and one cotangent d_NAME per output."""
    import tile_lang

    from tile_runtime.arguments import input_type
    from tile_runtime.derivatives import vjp

    function = read_function(file)
    types = {n: input_type(n, p) for n, p in placeholders(function, shape).items()}
    program = function.bind(types)
    known = program.types()
    cotangents = {f"d_{public}": known[value] for public, value in program.outputs}
    gradient = vjp(function, tuple(wrt) or function.inputs)
    print(tile_lang.print_program(gradient.bind({**types, **cotangents})).rstrip("\n"))
