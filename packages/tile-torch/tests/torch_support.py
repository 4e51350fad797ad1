"""The table of operators in docs/torch-operators.md: ``python torch_support.py`` rewrites it from the record of samples."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import op_samples
import torch
from tile_torch.complexes import formulas
from tile_torch.decompositions import decompositions
from tile_torch.registry import converters
from tile_torch.walk import BETWEEN, DECIDED
from torch._ops import OpOverload, OpOverloadPacket

PAGE = Path(__file__).parents[3] / "docs" / "torch-operators.md"
HEAD = """# Operators of PyTorch

What `tile_torch` makes of the operators of ATen that PyTorch (2.13 to 2.15) calls *core*, and of those beyond them that have
converters; and which of PyTorch's own samples of its operators (OpInfo) pass on `llvm`, compared with eager PyTorch, forward
and backward. This page is written by `packages/tile-torch/tests/torch_support.py` from the record `op_samples.json`; a test
compares it.

**How**: *Tile*: a converter writes Tile for it; *divided*: PyTorch takes it apart into other operators; *drawn*: PyTorch draws
random numbers by its own stream before the program runs; *host*: PyTorch computes it between programs; *size*: a number
that is known before; *refused*: why. **Samples** are those that pass and in whose graphs the operator occurs, **types** their
dtypes; **gradient** says that gradients of such samples agree, too. An operator without samples occurs in no graph of a sample that was taken.

Samples taken: {taken} of {named} operators of PyTorch; {passing} pass, {failing} do not. Those that do not need what Tile
has not (sparse tensors), operators without converters, or are listed at the end. Samples with complex
results are not taken; of complex numbers Tile computes the parts (`tile_torch.complexes` says which operators have forms for them).

| Operator | How | Samples | Gradient | Types |
|---|---|---|---|---|
"""

REFUSED = {
    "aten.resize_.default": "it changes the size of an argument",
    "aten.atan2.out": "it writes to an argument; PyTorch replaces it by `atan2`",
    "aten.sym_is_contiguous.default": "a question about layouts; PyTorch answers it while it traces",
}
"""Core operators that no program can have."""
SIZES = ("aten.sym_",)


@dataclass
class Row:
    """What the record says of an operator of ATen."""

    passing: int = 0
    gradient: bool = False
    dtypes: set[str] = field(default_factory=set[str])


def core() -> Iterator[OpOverload]:
    """The operators that PyTorch calls core."""
    every_name = torch._C._dispatch_get_all_op_names()
    for name in sorted({n.removeprefix("aten::").partition(".")[0] for n in every_name if n.startswith("aten::")}):
        packet = getattr(torch.ops.aten, name, None)
        if isinstance(packet, OpOverloadPacket):
            every = (getattr(packet, overload) for overload in packet.overloads())
            yield from (op for op in every if torch.Tag.core in op.tags)


def rows() -> dict[str, Row]:
    """The record, by operator of ATen."""
    found: dict[str, Row] = defaultdict(Row)
    for key, record in op_samples.recorded().items():
        for name in record.operators:
            row = found[name]
            row.passing += record.passing
            row.dtypes.add(key.rpartition(" ")[2])
            row.gradient = row.gradient or name in record.gradients
    return found


STILL = frozenset({torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default})
"""Operators that PyTorch says draw random numbers, and that draw none: with dropout attention is other operators."""


def how(op: OpOverload) -> str:
    """What becomes of an operator."""
    name = str(op)
    if name in REFUSED:
        return f"refused: {REFUSED[name]}"
    if name.startswith(SIZES):
        return "size"
    if op in BETWEEN:
        return "host"
    if op in converters() or op in formulas():
        return "drawn" if torch.Tag.nondeterministic_seeded in op.tags and op not in STILL else "Tile"
    if DECIDED.intersection(op.tags):
        return "host"
    return "divided" if op in decompositions() or divided_early(op) else "not supported"


def divided_early(op: OpOverload) -> bool:
    """Whether PyTorch takes it apart before any backend is asked."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeImplicitAutograd")


def operators() -> list[OpOverload]:
    """Core operators, and others of ATen with converters, or that the host computes."""
    beyond = {op for op in (*converters(), *BETWEEN) if str(op).startswith("aten.")}
    return sorted({*core()} | beyond, key=str)


def lines() -> Iterator[str]:
    found, names = rows(), {str(op) for op in core()}
    for op in operators():
        row = found.get(str(op), Row())
        label = str(op).removeprefix("aten.") + ("" if str(op) in names else " (beyond core)")
        samples = str(row.passing) if row.passing else ""
        yield f"| {label} | {how(op)} | {samples} | {'yes' if row.gradient else ''} | {', '.join(sorted(row.dtypes))} |\n"


ABSENT = ("Tile has no", "DynamicOutputShape", "DataDependentOutput", "FakeTensor")
"""What reasons of samples say that need what Tile has not."""


def open_ends() -> Iterator[str]:
    """Samples that fail for other reasons."""
    yield "\n## Samples that do not pass, for other reasons\n\n"
    for key, record in sorted(op_samples.recorded().items()):
        for why, count in record.failing.items():
            if not any(part in why for part in ABSENT):
                yield f"- {key}: {count}, {why.replace('|', '/')[:160]}\n"


def text() -> str:
    """The page."""
    records = op_samples.recorded()
    head = HEAD.format(
        taken=sum(r.passing + sum(r.failing.values()) for r in records.values()),
        named=len({key.partition(" ")[0] for key in records}),
        passing=sum(r.passing for r in records.values()),
        failing=sum(sum(r.failing.values()) for r in records.values()),
    )
    return head + "".join(lines()) + "".join(open_ends())


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
