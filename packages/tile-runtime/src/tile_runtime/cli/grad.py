"""`tile grad`."""

from __future__ import annotations

from tile_runtime.cli.common import Named, Shapes, Wrt, argument_types, read_any, typed


def grad(
    file: Named,
    wrt: Wrt = [],  # noqa: B006 - typer copies it
    shape: Shapes = [],  # noqa: B006
) -> None:
    """Print the program that computes gradients: from the inputs and one cotangent d_NAME per output."""
    import tile_lang

    from tile_runtime.arguments import input_type
    from tile_runtime.transforms.derivatives import vjp

    found = read_any(file)
    given = argument_types(found, shape)
    function = typed(found, given)
    types = {**{n: input_type(n, v) for n, v in function.bound.items()}, **given}
    program = function.bind(types)
    known = program.types()
    cotangents = {f"d_{public}": known[value] for public, value in program.outputs}
    gradient = vjp(function, tuple(wrt) or function.arguments)
    print(tile_lang.print_program(gradient.bind({**types, **cotangents})).rstrip("\n"))
