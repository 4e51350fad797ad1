"""What a report holds; every value is plain data that `to_dict` turns into JSON types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, field
from typing import Any

from tile_ir.frozen import frozen

from tile_opt.model.causes import Cause
from tile_opt.passes.choosing import Choice
from tile_opt.rounding.bound import Bound, factor


@frozen
class TableColumn:
    """An access to a buffer: elements from the buffer's start, and stride per loop of the table."""

    buffer: str
    strides: tuple[int, ...]
    offset: int


@frozen
class FlattenTable:
    """One stage of a kernel: its loops by name, accesses, constraints ``left · loops <= right`` and operations."""

    stage: str
    names: tuple[str, ...]
    ranges: tuple[int, ...]
    columns: tuple[TableColumn, ...]
    constraints: tuple[tuple[tuple[int, ...], int], ...]
    operations: tuple[str, ...]
    """The body, an operation a line, in the names of buffers and scalars."""
    aggregation: str = ""
    """How the stage merges into its output ("add", "max"…), when it does."""
    implied: tuple[tuple[tuple[int, ...], int], ...] = ()
    """More constraints of the contraction, which the others imply and the kernel does not check."""


@frozen
class Prediction:
    """What the cost model expects of one launch of a scheduled kernel."""

    seconds: float
    causes: tuple[Cause, ...]
    """What the seconds are spent on; they add up, the largest first."""
    traffic: Mapping[str, int]
    """Bytes that move between each level of memory and the next."""
    share: float | None
    """Share of the machine's peak arithmetic; None for kernels without arithmetic."""


@frozen
class PlanCandidate:
    """Another plan that the scheduler would consider, on one line, and its predicted seconds."""

    plan: str
    seconds: float


@frozen
class PlanReport:
    """The decision of the pass that scheduled a kernel.

    `kind` says why in a few words ("register tile", "rows"…); "plans of its blocks" for a whole program in one kernel,
    "scheduled by passes" where tiling was not decided by a plan, "none" where nothing was.
    """

    kind: str
    lines: tuple[str, ...] = ()
    """The plan as `tile plan` prints it, without its frame."""
    given: bool = False
    """It was the caller's, not the compiler's."""
    prediction: Prediction | None = None
    measured: float | None = None
    """Seconds of one launch, where the kernel was run."""
    candidates: tuple[PlanCandidate, ...] = ()
    search: tuple[str, ...] = ()
    """The tile search by reads and roofline over this kernel, a tile an entry, in the order of evaluation."""


@frozen
class LoopReport:
    """A bound loop of the schedule; `form` is how a grid loop is unpacked from the group number of its axis."""

    name: str
    range: int
    axis: int = 0
    form: str = ""


@frozen
class ScheduleReport:
    """What the scheduled kernel really has, read from its Stripe."""

    grid: tuple[LoopReport, ...] = ()
    items: tuple[LoopReport, ...] = ()
    lanes: int = 1
    unrolled: tuple[LoopReport, ...] = ()
    local_bytes: int = 0
    """Memory shared by a group."""
    private_bytes: int = 0
    """Registers and arrays of one work item, at most over alternatives."""
    barriers: int = 0
    reductions: tuple[str, ...] = ()
    """Values that the items of a group combine."""


@frozen
class Roofline:
    """`intensity` operations per compulsory byte against the target's knee; `attainable` is a share of peak."""

    intensity: float
    knee: float
    attainable: float

    @property
    def bound(self) -> str:
        return "compute" if self.intensity >= self.knee else "memory"


@frozen
class KernelReport:
    """One distinct kernel."""

    name: str
    statements: tuple[str, ...]
    """The Tile statements it computes."""
    lines: tuple[tuple[str, int], ...]
    """(source name, 1-based line) of those statements."""
    groups: tuple[int, int, int]
    group_size: tuple[int, int, int]
    launches: int
    operations: int
    """Arithmetic of one launch."""
    bytes: int
    """Compulsory traffic of one launch."""
    tables: tuple[FlattenTable, ...]
    plan: PlanReport
    schedule: ScheduleReport
    roofline: Roofline | None
    """None when the kernel does no arithmetic or moves nothing."""
    labels: tuple[str, ...] = ()
    """What users call the applications of functions that its launches compute."""
    seldom: str = ""
    """When it runs, where that is not in every run."""
    parts: tuple[tuple[str, PlanReport], ...] = ()
    """(name, plan) of the kernels that run on its tiles one after the other, if there are such."""
    instructions: tuple[str, ...] = ()
    """What it multiplies with, beside single products."""

    @property
    def intensity(self) -> float:
        """Operations per compulsory byte."""
        return self.operations / self.bytes if self.bytes else 0.0

    @property
    def output_operations(self) -> tuple[str, ...]:
        """What happens to results after the last aggregation; all operations where there is none."""
        merging = [k for k, t in enumerate(self.tables) if t.aggregation]
        return tuple(line for t in self.tables[merging[-1] + 1 if merging else 0 :] for line in t.operations)


@frozen
class MemoryReport:
    """Bytes of device buffers while the program runs."""

    inputs: int = 0
    outputs: int = 0
    constants: int = 0
    arena: int = 0
    """The arenas that temporaries share."""
    temporaries: int = 0
    """What the temporaries would take without sharing."""

    @property
    def peak(self) -> int:
        return self.inputs + self.outputs + self.constants + self.arena


@frozen
class ErrorReport:
    """A certified bound on an output's rounding error: |error| <= `factor` times what `relation` says.

    `relation` is "exact", "value" (the result), "terms" (the result's expression with every input and difference made
    positive: for a matrix product, the sum of |products|) or "none"; then `reason` says why.
    """

    output: str
    relation: str
    factor: float | None
    reason: str = ""
    roundoff: float = 0.0
    exponent: float = 0.0
    """Where it is not zero, the factor is t / (1 - t) with t = `roundoff` + `exponent` x, and x the largest exponent of absolute values."""

    @staticmethod
    def of(output: str, bound: Bound) -> ErrorReport:
        return ErrorReport(output, bound.relation.value, bound.factor, bound.reason, bound.roundoff, bound.exponent)

    def factor_for(self, exponent: float) -> float | None:
        """The factor where no exponential is of a sum whose terms have larger absolute values together; None where there is no bound."""
        return None if self.relation == "none" else factor(self.roundoff + self.exponent * exponent)

    @property
    def text(self) -> str:
        """The bound in words."""
        match self.relation:
            case "exact":
                return "exact"
            case "value":
                return f"|error| <= {self._size} × |{self.output}|{self._where}"
            case "terms":
                return f"|error| <= {self._size} × {self.output} of absolute values (for products: Σ|products|){self._where}"
            case _:
                return f"no bound: {self.reason}"

    @property
    def _size(self) -> str:
        return "t/(1 - t)" if self.exponent else f"{self.factor:.3g}"

    @property
    def _where(self) -> str:
        if not self.exponent:
            return ""
        return f", t = {self.roundoff:.3g} + {self.exponent:.3g} x, x the largest exponent of absolute values"


@frozen
class ProgramReport:
    """A whole compilation."""

    name: str
    target: str
    kernels: tuple[KernelReport, ...]
    steps: int
    memory: MemoryReport
    seconds: Mapping[str, float]
    """Compile time per stage, in order."""
    sources: Mapping[str, str] = field(default_factory=dict[str, str])
    """Text of every Tile source, by name."""
    choices: tuple[Choice, ...] = ()
    """Between kernels, in the order in which they were made."""
    errors: tuple[ErrorReport, ...] = ()
    """Bounds on the rounding error of each output."""

    @property
    def operations(self) -> int:
        return sum(k.operations * k.launches for k in self.kernels)

    @property
    def bytes(self) -> int:
        return sum(k.bytes * k.launches for k in self.kernels)

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON types, derived numbers included."""
        document = asdict(self)
        for mine, kernel in zip(document["kernels"], self.kernels, strict=True):
            mine |= {"intensity": kernel.intensity, "output_operations": list(kernel.output_operations)}
            if kernel.roofline is not None:
                mine["roofline"]["bound"] = kernel.roofline.bound
        document["memory"]["peak"] = self.memory.peak
        for error, bound in zip(document["errors"], self.errors, strict=True):
            error["text"] = bound.text
        return document
