"""What can be wrong with a semtree function; all of it is a compiler's mistake, never a user's.

One class per rule, so that a test (or a person) can say which rule was broken.
"""

from __future__ import annotations

from tile_ir.diagnostics import TileInternalError


class SemtreeError(TileInternalError):
    """A function breaks a rule of the language."""


class UndeclaredName(SemtreeError):
    """A variable is used outside the scope of its declaration, or before it."""


class RedeclaredName(SemtreeError):
    """A scope declares a name twice."""


class ImmutableAssignment(SemtreeError):
    """Assign changes something that is not a mutable variable."""


class TypeMismatch(SemtreeError):
    """Operands, or a node and its operands, have different types; or a variable not its declared one."""


class UnknownOperation(SemtreeError):
    """An operator, function, collective or option that the language does not have."""


class IllegalDtype(SemtreeError):
    """An operation is not defined on this dtype."""


class IllegalCast(SemtreeError):
    """A cast changes the number of lanes or involves a pointer."""


class PointerExpected(SemtreeError):
    """Memory is addressed through something that is no pointer variable or array."""


class IndexTypeError(SemtreeError):
    """An index, a loop bound or a lane selector is not an int32 or int64 scalar."""


class MaskMismatch(SemtreeError):
    """A mask or condition is not bool, or has other lanes than what it masks."""


class LaneError(SemtreeError):
    """A lane number is out of range, or a lane count is impossible."""


class AxisError(SemtreeError):
    """A work-item axis is not 0, 1 or 2."""


class LoopError(SemtreeError):
    """A loop's bounds differ in type, or its step is not positive."""


class AlignmentValueError(SemtreeError):
    """An alignment is not a power of two (or 0 for "unknown")."""


class AccessViolation(SemtreeError):
    """A read-only parameter or constant memory is written."""


class AllocationError(SemtreeError):
    """An allocation has no elements or lives in a space that kernels cannot allocate."""


class NodeNotAllowed(SemtreeError):
    """An optional node that the target does not take."""


class DivergentBarrier(SemtreeError):
    """Threads of a group may disagree on whether they reach a barrier."""


class HelperError(SemtreeError):
    """A call names no helper, or passes arguments that do not fit."""


class SignatureError(SemtreeError):
    """Parameters or the shape of the work group are impossible."""


class LiteralError(SemtreeError):
    """A literal does not fit its type."""


class SemtreeRuntimeError(SemtreeError):
    """A launch did something undefined: a race, an access out of bounds, a read of nothing, a lost barrier."""
