"""Values that no call changes: constants, bound inputs, and what operations make of these alone."""

from __future__ import annotations

from tile_ir.program.liveness import used_by
from tile_ir.program.nodes import ConstantTensor, Prng, Program, TensorType, results_of


def fixed_values(program: Program, *, bound: bool = True) -> dict[str, TensorType]:
    """Their types by name. Such steps run once, or once per change of a bound input (`lowering.constant`).

    Without `bound` only what constants alone decide.
    """
    found = {param.name: param.type for param in program.inputs if param.bound and bound}
    for op in program.ops:
        used = used_by(op)
        if isinstance(op, ConstantTensor) or (used and not isinstance(op, Prng) and found.keys() >= set(used)):
            found.update(results_of(op))
    return found
