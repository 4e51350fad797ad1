"""The registry of Stripe passes: names that targets use, resolved when first needed.

A pass joins by one line in `PASSES`; its module is imported only when a pass list names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from difflib import get_close_matches
from importlib import import_module
from typing import Any

from tile_ir.diagnostics import Diagnostic, TileDeviceError
from tile_ir.frozen import frozen
from tile_ir.target import PassConfig

from tile_opt.passes.base import KernelPass, Pass

PASSES: dict[str, str] = {
    "atomics": "tile_opt.passes.kernels.atomics:Atomics",
    "scan": "tile_opt.passes.kernels.scan:Scan",
    "places": "tile_opt.passes.kernels.places:Places",
    "inline": "tile_opt.passes.kernels.inline:Inline",
    "in_place": "tile_opt.passes.kernels.in_place:InPlace",
    "fuse": "tile_opt.passes.kernels.fuse:Fuse",
    "recompute": "tile_opt.passes.kernels.recompute:Recompute",
    "pool_constants": "tile_opt.passes.kernels.pool_constants:PoolConstants",
    "tile_pipelines": "tile_opt.passes.kernels.tile_pipelines:TilePipelines",
    "item_chains": "tile_opt.passes.kernels.item_chains:ItemChains",
    "merge": "tile_opt.passes.kernels.merge:Merge",
    "ungroup": "tile_opt.passes.kernels.ungroup:Ungroup",
    "accumulate": "tile_opt.passes.kernels.accumulate:Accumulate",
    "stream": "tile_opt.passes.kernels.stream:Stream",
    "autotile": "tile_opt.passes.accelerator.autotile:Autotile",
    "schedule_kernels": "tile_opt.passes.kernels.schedule_kernels:ScheduleKernels",
    "unstage": "tile_opt.passes.accelerator.unstage:Unstage",
    "tile": "tile_opt.passes.accelerator.tile:Tile",
    "tensorize": "tile_opt.passes.accelerator.tensorize:Tensorize",
    "fusion": "tile_opt.passes.accelerator.fusion:Fusion",
    "localize": "tile_opt.passes.accelerator.localize:Localize",
    "scalarize": "tile_opt.passes.accelerator.scalarize:Scalarize",
    "locate_block": "tile_opt.passes.accelerator.locate_block:LocateBlock",
    "locate_memory": "tile_opt.passes.accelerator.locate_memory:LocateMemory",
    "cache": "tile_opt.passes.accelerator.cache:Cache",
    "prune": "tile_opt.passes.accelerator.prune:Prune",
    "compute_deps": "tile_opt.passes.accelerator.compute_deps:ComputeDeps",
    "schedule": "tile_opt.passes.accelerator.schedule:Schedule",
    "memory_placement": "tile_opt.passes.accelerator.memory_placement:MemoryPlacement",
    "matrix_tile": "tile_opt.passes.kernels.matrix_tile:MatrixTile",
    "tensor_tile": "tile_opt.passes.kernels.tensor_tile:TensorTile",
    "group_tile": "tile_opt.passes.kernels.group_tile:GroupTile",
    "gpu_tile": "tile_opt.passes.kernels.gpu_tile:GpuTile",
    "repeat_small": "tile_opt.passes.kernels.repeat_small:RepeatSmall",
    "join_rows": "tile_opt.passes.kernels.join_rows:JoinRows",
    "step_rows": "tile_opt.passes.kernels.step_rows:StepRows",
    "launch_together": "tile_opt.passes.kernels.launch_together:LaunchTogether",
}
"""Pass name -> ``module:class``."""


@frozen
class Former:
    """What a pass's name once meant, too: the targets of backends that were written then go on working."""

    name: str
    """What it is called now."""
    unless: tuple[str, ...]
    """Options of which one is given where the name means what it still does."""
    gone: tuple[str, ...]
    """Options that it no longer has."""


FORMER: dict[str, Former] = {
    "autotile": Former("schedule_kernels", unless=("memory", "reqs"), gone=("pack",)),
}
"""By the name in a target of HAL API 1.0 and later."""


def pass_class(name: str) -> type[Pass]:
    """The class registered as `name`; TileDeviceError TILE-E401 when there is none."""
    path = PASSES.get(name)
    if path is None:
        raise TileDeviceError(
            Diagnostic("TILE-E401", f"there is no Stripe pass named {name!r}", hint=_hint(name, PASSES))
        )
    module, _, attribute = path.partition(":")
    found: type[Pass] = getattr(import_module(module), attribute)
    return found


_SCALARS: Mapping[str, tuple[type, ...]] = {"bool": (bool,), "int": (int,), "float": (int, float), "str": (str,)}
"""What may be given for an option of a type."""


def create(config: PassConfig) -> Pass:
    """The pass that `config` describes; TileDeviceError for an unknown name (TILE-E401) or bad options (TILE-E402)."""
    cls = pass_class(config.name)
    known = {f.name for f in fields(cls)}
    for option in config.options:
        if option not in known:
            message = f"pass {config.name!r} has no option {option!r}"
            raise TileDeviceError(Diagnostic("TILE-E402", message, hint=_hint(option, known)))
    options = {key: _frozen(value) for key, value in config.options.items()}
    try:
        return _checked(cls.from_options(options))
    except (TypeError, ValueError, KeyError) as error:
        message = f"pass {config.name!r} does not take these options: {error}"
        raise TileDeviceError(Diagnostic("TILE-E402", message, hint=_hint("", known))) from error


def _checked(made: Pass) -> Pass:
    """The pass, each of whose options of a simple type has it; TypeError for another."""
    for field in fields(made):
        value, kinds = getattr(made, field.name), _SCALARS.get(str(field.type))
        if kinds and (not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds)):
            raise TypeError(f"{field.name} is {value!r}, not of type {field.type}")
    return made


def current(config: PassConfig) -> PassConfig:
    """An entry of a target's pass list in the words of this version."""
    former = FORMER.get(config.name)
    if former is None or any(config.options.get(option) for option in former.unless):
        return config
    kept = {option: value for option, value in config.options.items() if option not in former.gone}
    return PassConfig(former.name, config.label, kept)


def _frozen(value: Any) -> Any:
    """JSON lists as tuples, also within tables, so that passes stay hashable."""
    if isinstance(value, dict):
        return {str(key): _frozen(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value  # pyright: ignore[reportUnknownVariableType]


def _hint(name: str, known: set[str] | dict[str, str]) -> str:
    close = get_close_matches(name, known, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return "known: " + (", ".join(sorted(known)) or "none")


__all__ = ["PASSES", "KernelPass", "Pass", "create", "pass_class"]
