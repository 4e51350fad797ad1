"""`tile conformance`."""

from __future__ import annotations

import typer


def conformance(context: typer.Context) -> None:
    """Run the HAL conformance suite on a backend.

    All options go to `python -m tile_hal.conformance`: --backend NAME, --level 0…5, --examples N, --json FILE,
    --markdown FILE. Needs pip install 'tile-hal[conformance]'.
    """
    from tile_hal.conformance.__main__ import main

    raise typer.Exit(main(context.args))
