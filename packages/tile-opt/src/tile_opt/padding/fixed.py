"""Values that a program computes from constants alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from tile_ir.program.liveness import live_ops
from tile_ir.program.nodes import Program

from tile_opt.program.fixed import fixed_values

LARGEST = 2**26
"""Elements up to which values behind a constant are computed."""


class Fixed:
    """Of one program."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._types = program.types()
        self._names = fixed_values(program, bound=False).keys()
        self._finite: dict[str, bool] = {}

    def finite(self, name: str) -> bool:
        """Whether a value is computed from constants alone, and has neither infinities nor NaN."""
        if name not in self._finite:
            found = self.value(name) if self._types[name].dtype.is_float else None
            known = name in self._names and not self._types[name].dtype.is_float
            self._finite[name] = known or (found is not None and bool(np.isfinite(found.astype(np.float64)).all()))
        return self._finite[name]

    def value(self, name: str) -> np.ndarray[Any, Any] | None:
        """A value that is computed from constants alone, and is not too large to look at."""
        from tile_lang.evaluate import evaluate

        if name not in self._names or self._types[name].size > LARGEST:
            return None
        ops = live_ops(self._program.ops, [name])
        return evaluate(Program("fixed", (), ops, ((name, name),)), {})[name]
