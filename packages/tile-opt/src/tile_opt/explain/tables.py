"""Flatten tables of a kernel's stages, and their bodies as operations."""

from __future__ import annotations

from collections.abc import Sequence

from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Const, Load, LoadIndex, Op, Reduce, Statement, Store
from tile_ir.stripe.printer import print_form

from tile_opt.explain.data import FlattenTable, TableColumn
from tile_opt.kernel.strides import flat_offset, flat_stride
from tile_opt.kernel.view import KernelView, Stage
from tile_opt.kernel.work import merged_use


def flatten_table(view: KernelView, stage: Stage, implied: Sequence[Affine] = ()) -> FlattenTable:
    """Range of each loop and its stride in each buffer of memory (the flatten table)."""
    loops = sorted((*view.loops, *stage.loops), key=lambda index: index.name)
    names = tuple(i.name for i in loops)
    columns = tuple(
        TableColumn(u.buffer, tuple(flat_stride(view, u, n) for n in names), flat_offset(view, u))
        for u in stage.uses
        if not view.is_local(u.buffer)
    )
    merged = merged_use(stage)
    agg = merged.agg.value if merged is not None and merged.agg is not None else ""
    return FlattenTable(
        stage.name, names, tuple(i.range for i in loops), columns, _one_sided(stage.constraints, names),
        body_operations(stage), agg, _one_sided(implied, names),
    )  # fmt: skip


def _one_sided(forms: Sequence[Affine], names: Sequence[str]) -> tuple[tuple[tuple[int, ...], int], ...]:
    """Forms that are >= 0 as (coefficients, right side) of ``coefficients . loops <= right side``."""
    return tuple((tuple(-form.coefficient(n) for n in names), form.const) for form in forms)


def body_operations(stage: Stage) -> tuple[str, ...]:
    """``R = cond(_T0, O, 0)``: the operations of a body with constants and loads written in place."""
    return statement_lines(
        stage.body,
        {u.name: u.buffer for u in stage.uses},
        {u.name: u.agg.value for u in stage.uses if u.agg is not None and u.agg.value != "assign"},
    )


def statement_lines(body: tuple[Statement, ...], buffers: dict[str, str], merges: dict[str, str]) -> tuple[str, ...]:
    """Operations of a flat body; `buffers` gives views their full names, `merges` the aggregation of a store."""
    values: dict[str, str] = {}
    lines: list[str] = []
    for statement in body:
        match statement:
            case Load():
                values[statement.dst] = _place(statement, buffers.get(statement.src, statement.src), values)
            case Const():
                values[statement.dst] = (
                    f"{statement.value:g}" if isinstance(statement.value, float) else str(statement.value)
                )
            case LoadIndex():
                values[statement.dst] = f"({print_form(statement.value)})"
            case Op():
                name = values[statement.dst] = statement.dst.removeprefix("$")
                lines.append(f"{name} = {statement.name}({', '.join(values.get(a, a) for a in statement.args)})")
            case Reduce():
                name = values[statement.dst] = statement.dst.removeprefix("$")
                source = values.get(statement.src, statement.src)
                lines.append(f"{name} = {statement.agg.value} of {source} over {', '.join(statement.over)}")
            case Store():
                _store(lines, statement, _place(statement, buffers.get(statement.dst, statement.dst), values),
                       values.get(statement.src, statement.src), merges.get(statement.dst, ""))  # fmt: skip
            case _:
                pass
    return tuple(lines)


def _place(statement: Load | Store, buffer: str, values: dict[str, str]) -> str:
    at = ", ".join(values.get(a, a) if isinstance(a, str) else print_form(a) for a in statement.at)
    return f"{buffer}[{at}]" if at else buffer


def _store(lines: list[str], statement: Store, place: str, value: str, merge: str) -> None:
    """The last operation takes the name of the buffer that its result goes to."""
    if merge:
        lines.append(f"{place} = {merge}({place}, {value})")
    elif lines and lines[-1].startswith(f"{value} = "):
        if place != value:
            lines[-1] = place + lines[-1][len(value) :]
    else:
        lines.append(f"{place} = {value}")
