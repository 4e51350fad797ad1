"""`tile new-backend`."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer


class Kind(Enum):
    """What kernels are given to the backend as; `tile_hal.scaffold.KINDS` says the same."""

    C = "c"
    STRIPE = "stripe"


def new_backend(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The driver's name: lower-case letters, digits, underscores.")
    ],
    kind: Annotated[Kind, typer.Option("--kind", help="c: kernels as C text; stripe: scheduled Stripe.")] = Kind.C,
    into: Annotated[Path, typer.Option("--into", metavar="FOLDER", help="Where the folder tile-NAME goes.")] = Path(),
    license: Annotated[
        str, typer.Option("--license", metavar="SPDX", help="For pyproject.toml; yours to choose.")
    ] = "",
) -> None:
    """Write a repository for a new backend: a device that conforms, its tests, a workflow and a README with a badge.

    Nothing that is there already is touched.
    """
    from tile_hal.scaffold import new_backend as write

    path = write(name, kind.value, into, license)
    print(f"{path} is written. Next:\n  cd {path} && pip install '.[test]' && pytest")
