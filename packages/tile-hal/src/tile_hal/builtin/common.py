"""What the two built-in drivers share: their target documents."""

from __future__ import annotations

from importlib.resources import files

from tile_ir.target import Target


def load_target(name: str) -> Target:
    """The target document that this package ships under `name`."""
    return Target.from_json(files("tile_hal").joinpath("targets", f"{name}.json").read_text(encoding="utf-8"))
