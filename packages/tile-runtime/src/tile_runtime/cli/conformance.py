"""`tile conformance`."""

from __future__ import annotations

from collections.abc import Sequence

import typer
from typer.core import TyperCommand


class Forwarding(TyperCommand):
    """All arguments go to the function as they were given, a ``--`` among them too."""

    def parse_args(self, ctx: typer.Context, args: Sequence[str]) -> list[str]:  # pyright: ignore[reportIncompatibleMethodOverride]
        rest = super().parse_args(ctx, [*args])
        ctx.args = [*args]
        return rest


def conformance(context: typer.Context) -> None:
    """Run the HAL conformance suite on a backend.

    All options go to `python -m tile_hal.conformance`: --backend NAME, --level 0…5, --examples N, --timeout SECONDS,
    --plugin MODULE, --json FILE, --markdown FILE, --badge FILE, and pytest's own after --. Needs pip install
    'tile-hal[conformance]'.
    """
    from tile_hal.conformance.__main__ import main

    raise typer.Exit(main(context.args))
