"""What tuning found, kept on disk beside the compiled code: the fastest plan by kernel and machine.

A kernel is known by its structure, so that equal kernels of any program share a winner; its plan is stored as text, in
names that only say which loop and which buffer.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from tile_hal.disk_cache import disk_cache
from tile_ir.diagnostics import TileError, TilePlanWarning
from tile_ir.settings import Settings

if TYPE_CHECKING:
    from tile_opt.passes.scheduling import Decision
    from tile_opt.plan.plan import Plan

    from tile_runtime.lowered import Lowered

NAME = "winner"
"""What the stored text calls its kernel."""


def find(low: Lowered, decision: Decision, trials: int) -> Plan | None:
    """The stored winner among at least `trials` plans of a kernel; None, with a warning, when it no longer fits."""
    settings = Settings.from_environment()
    data = None if settings.cache == "off" else disk_cache(settings).read(_key(low, decision))
    if data is None:
        return None
    try:
        document: dict[str, Any] = json.loads(data)
        if int(document["trials"]) < trials:
            return None
        plan = _restored(str(document["plan"]), decision)
        if plan is not None:
            decision.scheduler.checked(decision.view, plan, low.target)
        return plan
    except (ValueError, TypeError, KeyError, TileError) as problem:
        reason = problem.diagnostics[0].message if isinstance(problem, TileError) else "it is damaged"
        message = f"the plan that tuning kept for kernel {decision.view.name!r} is not used: {reason}"
        warnings.warn(message, TilePlanWarning, stacklevel=2)
        return None


def store(low: Lowered, decision: Decision, plan: Plan, trials: int) -> None:
    """Remember which of so many plans of a kernel won."""
    from tile_opt.plan.names import Names, numbered, renamed
    from tile_opt.plan.text import print_plans

    settings = Settings.from_environment()
    names = Names.of(decision.view)
    neutral = renamed(plan, names, numbered(names))
    if settings.cache == "on" and neutral is not None:
        document = {"trials": trials, "plan": print_plans({NAME: neutral})}
        disk_cache(settings).write(_key(low, decision), json.dumps(document).encode())


def _restored(text: str, decision: Decision) -> Plan | None:
    """The stored plan in the names of this kernel."""
    from tile_opt.plan.names import Names, numbered, renamed
    from tile_opt.plan.text import parse_plans

    names = Names.of(decision.view)
    return renamed(parse_plans(text)[NAME], numbered(names), names)


def _key(low: Lowered, decision: Decision) -> str:
    parts = [version("tile-opt"), low.device.compiler.fingerprint, low.target.to_json(), decision.key]
    return hashlib.sha256("\n".join([NAME, *parts]).encode()).hexdigest()
