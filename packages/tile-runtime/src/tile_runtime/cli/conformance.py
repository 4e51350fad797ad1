"""`tile conformance`."""

from __future__ import annotations

from collections.abc import Sequence

import typer
from typer.core import TyperCommand

FORWARDED = {"allow_extra_args": True, "ignore_unknown_options": True}
"""Settings of commands that hand all their arguments on."""


class Forwarding(TyperCommand):
    """All arguments go to the function as they were given, a ``--`` among them too."""

    def parse_args(self, ctx: typer.Context, args: Sequence[str]) -> list[str]:  # pyright: ignore[reportIncompatibleMethodOverride]
        rest = super().parse_args(ctx, [*args])
        ctx.args = [*args]
        return rest


def conformance(context: typer.Context) -> None:
    """Run the HAL conformance suite on a backend, or measure how fast it is.

    All options go to `python -m tile_hal.conformance`: --backend NAME, --level 0…5, --examples N, --timeout SECONDS (60),
    --plugin MODULE, --json FILE, --markdown FILE, --badge FILE, and pytest's own after --. Needs pytest
    and hypothesis.

    With --performance about a dozen kernels on drawn shapes are timed instead, and each one's share of the device's peaks is
    shown, with what explain says of the lowest: --backend NAME, --seed N, --seconds S, --kernels NAMES, --plugin MODULE, --json
    FILE, --markdown FILE.
    """
    from tile_hal.conformance.__main__ import PERFORMANCE, main

    if PERFORMANCE in context.args:
        from tile_runtime.performance.command import main as performance

        raise typer.Exit(performance([argument for argument in context.args if argument != PERFORMANCE]))
    raise typer.Exit(main(context.args))
