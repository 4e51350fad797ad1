"""Co-design: compile a program for many design points, simulate each, compare, plot.

Needs the extra ``sweep`` (the compiler and matplotlib); the device itself does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil, floor, log2
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tile_ir.diagnostics import Diagnostic, TileDeviceError
from tile_ir.dtype import DType

from tile_sim.design import target
from tile_sim.report import Report
from tile_sim.simulate import simulate

if TYPE_CHECKING:
    from tile_ir.program.nodes import Program

CONVOLUTION = """function (I[X, Y, C1], K1[KX, KY, C1, C2]) -> (R) {
    O1[x, y, co : X, Y, C2] = +(I[-1 + kx + x, -1 + ky + y, ci] * K1[kx, ky, ci, co]);
    R = (O1 > 0 ? O1 : 0);
}"""
"""PlaidML's layer_test7: a 3x3 convolution of int8, here with its rectifier."""


@dataclass(frozen=True)
class Design:
    """A point of the design space: CONV units, KiB of each SRAM, and other values of the template."""

    conv: int
    sram: float
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    template: str | None = None


@dataclass(frozen=True)
class Result:
    """A simulated design point."""

    design: Design
    report: Report

    def summary(self) -> dict[str, Any]:
        """The numbers of a table's row."""
        conv = [share for name, share in self.report.utilisation.items() if name.startswith("CONV")]
        return {
            "NUM_CONV": self.design.conv,
            "SRAM_SIZE_KIB": self.design.sram,
            "cycles": self.report.cycles,
            "microseconds": self.report.microseconds,
            "conv_utilisation": sum(conv) / max(1, len(conv)),
            "dma_utilisation": self.report.utilisation.get("DMA[0]", 0.0),
            "energy_per_op_pj": self.report.energy_per_op_pj,
        }


def convolution(x: int, y: int, ci: int, co: int) -> Program:
    """The convolution at a size."""
    return program_of(CONVOLUTION, {"I": f"int8[{x}x{y}x{ci}]", "K1": f"int8[3x3x{ci}x{co}]"})


def program_of(text: str, types: Mapping[str, str]) -> Program:
    """A bound program; a type is written ``int8[2x3]``."""
    from tile_ir.program.nodes import TensorType
    from tile_lang import bind, parse

    return bind(parse(text), {name: TensorType(*_type(name, t)) for name, t in types.items()})


def _type(name: str, text: str) -> tuple[DType, tuple[int, ...]]:
    match = re.fullmatch(r"(\w+)\[([\dx]*)\]", text)
    if match is None or match[1] not in [d.value for d in DType]:
        raise TileDeviceError(Diagnostic("TILE-E721", f"{text!r} is no type of {name}", hint="such as float32[2x3]"))
    return DType(match[1]), tuple(int(n) for n in match[2].split("x") if n)


def measure(program: Program, design: Design) -> Report:
    """Compile for a design point and simulate its time."""
    import tile_opt

    made = target(design.template, **{**design.values, "NUM_CONV": design.conv, "SRAM_SIZE_KIB": design.sram})
    return simulate(tile_opt.compile(program, made).kernels)[1]


def sweep(program: Program, designs: Iterable[Design]) -> list[Result]:
    """Every design point, in order."""
    return [Result(design, measure(program, design)) for design in designs]


def table(results: Sequence[Result]) -> str:
    """One line per design point, and where another doubling of the CONV units stops paying."""
    lines = ["CONV   SRAM KiB       cycles         us   CONV busy   DMA busy   pJ per op"]
    for result in results:
        s = result.summary()
        lines.append(
            f"{s['NUM_CONV']:4} {s['SRAM_SIZE_KIB']:10g} {s['cycles']:12} {s['microseconds']:10.1f} "
            f"{s['conv_utilisation']:11.1%} {s['dma_utilisation']:10.1%} {s['energy_per_op_pj']:11.2f}"
        )
    for sram in dict.fromkeys(r.design.sram for r in results):
        knee = stops_paying([r for r in results if r.design.sram == sram])
        lines.append(
            f"SRAM of {sram:g} KiB: "
            + (f"more than {knee} CONV units stop paying" if knee else "more CONV units still pay")
        )
    return "\n".join(lines)


def stops_paying(results: Sequence[Result], gain: float = 1.2) -> int | None:
    """The number of CONV units from which the next larger one shortens the time by less than `gain`; None if all pay."""
    ordered = sorted(results, key=lambda r: r.design.conv)
    for one, more in pairwise(ordered):
        if one.report.cycles < gain * more.report.cycles:
            return one.design.conv
    return None


def plot(results: Sequence[Result], path: Path) -> None:
    """Time over CONV units, one line per SRAM size, with the knee marked and the energy beside it."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4), layout="constrained")
    axes: Any = figure.subplots(1, 2)
    time, energy = axes
    for sram in dict.fromkeys(r.design.sram for r in results):
        mine = sorted((r for r in results if r.design.sram == sram), key=lambda r: r.design.conv)
        counts = [r.design.conv for r in mine]
        times = [r.report.microseconds for r in mine]
        (line,) = time.loglog(counts, times, "o-", label=f"{sram:g} KiB SRAM")
        energy.semilogx(counts, [r.report.energy_per_op_pj for r in mine], "o-", color=line.get_color())
        knee = stops_paying(mine)
        if knee is not None:
            time.plot([knee], [times[counts.index(knee)]], "s", markersize=12, fillstyle="none", color=line.get_color())
    for axis, label in ((time, "simulated time, us"), (energy, "energy per operation, pJ")):
        axis.set_xlabel("CONV units")
        axis.set_ylabel(label)
        axis.set_xticks(
            sorted({r.design.conv for r in results}), [str(n) for n in sorted({r.design.conv for r in results})]
        )
        axis.minorticks_off()
        axis.grid(True, alpha=0.3)
    spent = [r.report.microseconds for r in results]
    ticks = [2.0**k for k in range(floor(log2(min(spent))), ceil(log2(max(spent))) + 1)]
    time.set_yticks(ticks, [f"{t:g}" for t in ticks])
    time.plot([], [], "ks", markersize=12, fillstyle="none", label="more CONV units stop paying")
    time.legend()
    canvas: Any = figure
    canvas.savefig(path, dpi=120)
