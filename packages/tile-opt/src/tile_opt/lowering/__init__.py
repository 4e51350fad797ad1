"""Mechanical lowering of Stripe to kernel lists: no heuristics, no names of targets.

Every choice is a field of the scheduled program; this package only spells it out. Modules, outermost
first: `program` (buffers, steps, dependencies), `kernel` (parameters, launch grid), `nest` and `loops`
(indexes, constraints), `body`, `scalars` and `memory` (statements), `builder` and `forms` (arithmetic).
"""

from __future__ import annotations

from tile_opt.lowering.body import LoweringError
from tile_opt.lowering.program import lower

__all__ = ["LoweringError", "lower"]
