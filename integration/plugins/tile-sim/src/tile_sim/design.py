"""Design points: a target document is a template over a few numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from tile_ir.diagnostics import Diagnostic, TileDeviceError
from tile_ir.hardware import HardwareModel, hardware_model
from tile_ir.jsonc import read_json
from tile_ir.target import Target


def _resource(name: str) -> str:
    return files("tile_sim").joinpath("targets", name).read_text(encoding="utf-8")


DEFAULTS: Mapping[str, Any] = json.loads(_resource("default.json"))
"""The values of the shipped template."""


def expand(template: str, values: Mapping[str, Any]) -> str:
    """A template's text with ``{{ NAME }}`` and ``{% for %}`` replaced; TileDeviceError TILE-E413 for a name without value."""
    from jinja2 import StrictUndefined, TemplateError
    from jinja2.sandbox import SandboxedEnvironment

    environment = SandboxedEnvironment(undefined=StrictUndefined, autoescape=False)
    try:
        return environment.from_string(template).render(values)
    except TemplateError as error:
        line = getattr(error, "lineno", None)
        where = f" at line {line}" if line else ""
        hint = f"values given: {', '.join(sorted(values))}"
        raise TileDeviceError(
            Diagnostic("TILE-E413", f"the target's template{where}: {error.message}", hint=hint)
        ) from error


def target(template: str | None = None, **values: Any) -> Target:
    """The target of a design point: the shipped template (or `template`'s text) with DEFAULTS and `values`.

    TileDeviceError for an unknown name, a template or JSON mistake, or a model that does not hold together.
    """
    if template is None and (unknown := sorted(values.keys() - DEFAULTS.keys())):
        hint = f"known: {', '.join(DEFAULTS)}"
        raise TileDeviceError(Diagnostic("TILE-E413", f"a design has no value {unknown[0]!r}", hint=hint))
    text = expand(_resource("accelerator.json.j2") if template is None else template, {**DEFAULTS, **values})
    made = Target.from_json(json.dumps(read_json(text, "the target document")))
    hardware_model(made.model)
    return made


def machine(made: Target) -> HardwareModel:
    """The checked hardware model of a target."""
    return hardware_model(made.model)
