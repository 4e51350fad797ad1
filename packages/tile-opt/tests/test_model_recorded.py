"""Kernels that were timed on machines which are not here: a few of each class of the benchmarks, drawn without a look at how well they are forecast.

A file has a machine, then a line for each kernel: its case, its scheduled blocks, and the seconds of its fastest run. Zen 3 ran one thread
and has the numbers that its probe found; the Xeon ran two, and has those that were written down for it.
"""

from __future__ import annotations

import json
import lzma
from math import exp, log
from pathlib import Path
from statistics import mean

import pytest
from tile_ir.document import from_document
from tile_ir.machine import Machine
from tile_ir.stripe.parser import parse_block
from tile_ir.target import Target
from tile_opt.model.estimate import estimate

RECORDED = Path(__file__).parent / "recorded"
WITHIN, SHARE, APART = 1.5, 0.85, 1.25


@pytest.mark.parametrize("name", ["zen3", "xeon"])
def test_recorded_kernels_take_about_as_long_as_forecast(name: str) -> None:
    first, *lines = lzma.decompress((RECORDED / f"{name}.jsonl.xz").read_bytes()).decode().splitlines()
    target = Target(name, machine=from_document(Machine(), json.loads(first)["machine"], "machine"))
    apart: list[float] = []
    for run in map(json.loads, lines):
        predicted = sum(estimate(parse_block(text), target).seconds for text in run["blocks"])
        apart.append(abs(log(predicted / run["seconds"])))
    assert sum(one <= log(WITHIN) for one in apart) >= SHARE * len(apart)
    assert exp(mean(apart)) < APART
