"""Machines and kernels for the tests of the model."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from explain_support import NODES, compiled
from tile_ir.document import from_document
from tile_ir.machine import Machine
from tile_ir.stripe.nodes import Block
from tile_ir.target import HardwareSettings, PassConfig, Target
from tile_opt.plan.plan import Plan

FRONT = tuple(PassConfig(name) for name in ("inline", "fuse", "merge", "accumulate"))


def machine(name: str) -> Machine:
    """A reference machine from its document in `machines/`."""
    text = (Path(__file__).parent / "machines" / f"{name}.json").read_text(encoding="utf-8")
    return from_document(Machine(), json.loads(text), "machine")


def processor(name: str, cores: int = 1) -> Target:
    """A CPU target with the reference machine."""
    found = machine(name)
    settings = HardwareSettings(
        registers=found.vector.registers, vector_bytes=found.vector.bytes, cores=cores,
        l1_bytes=found.caches[0].bytes, l2_bytes=found.caches[1].bytes, l3_bytes=found.caches[2].bytes,
    )  # fmt: skip
    passes = (*FRONT, PassConfig("stream"), PassConfig("schedule_kernels"))
    return Target(name, settings, machine=replace(found, cores=cores), nodes=NODES, passes=passes)


def kernels(
    source: str, target: Target, plans: Mapping[str, Plan] | None = None, **shapes: tuple[int, ...]
) -> Iterator[Block]:
    """The scheduled kernels of a function."""
    (main,) = (s for s in compiled(source, target, plans=plans, **shapes).stripe.entry.body if isinstance(s, Block))
    return (s for s in main.body if isinstance(s, Block))


def kernel(source: str, target: Target, plans: Mapping[str, Plan] | None = None, **shapes: tuple[int, ...]) -> Block:
    """The only scheduled kernel of a function."""
    (found,) = kernels(source, target, plans, **shapes)
    return found
