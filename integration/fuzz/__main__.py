"""``python -m fuzz --seconds 600 --front-ends tensors,onnx``: draw graphs until the time is over; print what differs, made small."""

from __future__ import annotations

import argparse
import faulthandler
import secrets
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator

from fuzz.front_ends import FRONT_ENDS
from fuzz.graphs import Graph, differences, drawn

TOLD = 25
"""Graphs from one line that says how far it is to the next."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to run (60)")
    parser.add_argument("--seed", type=int, default=None, help="what graphs are drawn from (a fresh one)")
    parser.add_argument("--number", type=int, default=None, help="try only this graph")
    parser.add_argument("--front-ends", default=",".join(FRONT_ENDS), help="what computes them (%(default)s)")
    options = parser.parse_args()
    seed = secrets.randbelow(1 << 31) if options.seed is None else options.seed
    chosen = options.front_ends.split(",")
    numbers = iter([options.number]) if options.number is not None else _until(time.monotonic() + options.seconds)
    # A crash leaves where it was, and within how many graphs.
    faulthandler.enable()
    print(f"seed {seed}", flush=True)
    counts = Counter[str]()
    for number in numbers:
        if number % TOLD == 0 and options.number is None:
            print(f"graph {number} …", flush=True)
        graph = drawn([seed, number])
        for name in chosen:
            problem = tried(name, graph)
            counts[f"{name} failed" if problem else name] += 1
            if problem:
                print(f"\npython -m fuzz --seed {seed} --number {number} --front-ends {name}")
                print(*smaller(name, graph, problem), sep="\n", flush=True)
    print(", ".join(f"{name}: {count}" for name, count in sorted(counts.items())))
    return 1 if any(name.endswith("failed") for name in counts) else 0


def _until(end: float) -> Iterator[int]:
    number = 0
    while time.monotonic() < end:
        yield number
        number += 1


def tried(name: str, graph: Graph) -> str:
    """What is wrong with what a front end gives; "" for nothing."""
    try:
        found = FRONT_ENDS[name](graph)
        return "\n".join(line for results in found for line in differences(graph, results))
    except Exception:
        return traceback.format_exc()


def smaller(name: str, graph: Graph, problem: str) -> tuple[Graph, str]:
    """A part of the graph that goes wrong by itself: as few steps for one result as do."""
    first = len(graph.inputs)
    for output in range(first, first + len(graph.steps)):
        alone = graph.only(output)
        if found := tried(name, alone):
            return alone, found
    return graph, problem


if __name__ == "__main__":
    sys.exit(main())
