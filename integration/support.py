"""The support page from conformance reports: ``python integration/support.py [REPORT.json …]`` writes docs/support.md.

Each device of the given reports replaces its summary in docs/support/; devices of machines that are not at hand
(GPUs) keep theirs. Without reports, the page is written anew from the summaries.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tile_hal.conformance.report import LEVELS, OUTCOMES
from tile_ir.dtype import DType
from tile_ir.semtree.verify import OPTIONAL_NODES

DOCS = Path(__file__).parents[1] / "docs"
FIRST = ("interp", "llvm", "opencl")
"""Drivers at the head of the page."""
HEAD = """\
# Supported devices

What the conformance suite found, device by device. A level counts when all of its tests ran and nothing failed up to it; a skipped test needs a
dtype, node or group size that the device does not claim; a quirk is a failure that the device declares, with its reason.
Level 3 tests semtree node by node, or operation by operation where the device takes scheduled Stripe: what does not apply
to a device is not counted.
A `run` whose dependencies are pending returns at once or blocks until they are done; without any, a device may do the
work before `run` returns, as those that compute on the calling thread do (interp, llvm, sample, sim).
Oclgrind, a simulator that looks for races and stray accesses, runs without the tests that need several threads.

This page is written by `python integration/support.py build/conformance/*/report.json`, from the reports that
`nox -s conformance` leaves; [a plugin](plugin.md) of your own gets the same from `python -m tile_hal.conformance`.
"""
SYSTEMS = """\
## Processors and systems

What of `hal-llvm` was run where. **Never run** says what it says: the code is there, and no machine of that kind has executed it.

| | x86-64 | 64-bit ARM |
|---|---|---|
| Linux | this page: every test | kernels and libraries (`tile build -t aarch64-linux`), emulated by QEMU in the nightly session; Python 3.11 under QEMU: the first answer and the tests of hal-llvm, but those that start processes or ask for the processor |
| macOS | never run: kernels and the thread pool compile, the pool runs on an emulation of its semaphores | never run: the same |
| Windows | never run: the same | never run: the same |
| elsewhere | kernels run on the calling thread | kernels run on the calling thread |

Python 3.11 ran every test. On Linux, Python 3.14 ran the installation and its first answer and the tests of the language, the shared data, gradients,
the hardware layer, the CPU device, the runtime, ONNX, layers, dask, JAX and editors; Python 3.12 and 3.13 ran the installation and its first answer,
the tests of the language and of the shared data, and 3.12 a third of the runtime's.
"""
"""Which operating systems and processors, until reports of theirs say more."""
Summary = dict[str, Any]


def summaries(report: Summary) -> Iterable[Summary]:
    """One document per device of a report: its facts, and counts in place of the single tests."""
    for device in report["devices"]:
        cases = [case for case in report["cases"] if case["device"] == device["id"]]
        counts = {
            str(level): {o: sum(c["level"] == level and c["outcome"] == o for c in cases) for o in OUTCOMES}
            for level in LEVELS
        }
        failed = sorted(
            {d.value for d in DType for c in cases if c["outcome"] == "failed" and _mentions(c["name"], d.value)}
        )
        yield device | {
            "counts": counts,
            "failed_dtypes": failed,
            "versions": report["versions"] | device["versions"],
            "hal_api": report["hal_api"],
        }


def _mentions(case: str, dtype: str) -> bool:
    return dtype in re.split(r"[\[\]-]", case)


def page(devices: Sequence[Summary]) -> str:
    parts = [
        HEAD,
        "\n".join(_overview(devices)),
        SYSTEMS,
        "## Dtypes\n",
        "\n".join(_dtypes(devices)),
        "## Tests\n",
        "\n".join(_tests(devices)),
    ]
    notes = [f"- `{d['name']}`, `{name}`: {reason}" for d in devices for name, reason in d["quirks"].items()]
    return "\n".join([*parts, *(["## Quirks\n", *notes, ""] if notes else [])]) + "\n"


def _overview(devices: Sequence[Summary]) -> Iterable[str]:
    yield "| device | name | from | reached | a `run` that has to wait | items per group | semtree nodes |"
    yield "|---|---|---|---|---|---|---|"
    for d in devices:
        runs = "returns at once" if d["is_async"] else "blocks"
        reached = "–" if d["level"] is None else f"level {d['level']}"
        lacking = ", ".join(sorted(OPTIONAL_NODES - set(d["nodes"])))
        nodes = "the core" if not d["nodes"] else f"all but {lacking}" if lacking else "all"
        if d.get("codegen") == "stripe":
            nodes = "takes Stripe"
        yield f"| `{d['id']}` | {d['name']} | {d['distribution']} | {reached} | {runs} | {d['max_group_size']} | {nodes} |"
    yield ""


def _dtypes(devices: Sequence[Summary]) -> Iterable[str]:
    yield "| device | " + " | ".join(d.value for d in DType) + " |"
    yield "|---|" + "---|" * len(DType)
    for d in devices:
        marks = [
            "–" if t.value not in d["dtypes"] else "fails" if t.value in d["failed_dtypes"] else "yes" for t in DType
        ]
        yield f"| {d['name']} | " + " | ".join(marks) + " |"
    yield ""


def _tests(devices: Sequence[Summary]) -> Iterable[str]:
    yield "Passed, and in parentheses what was skipped; failures and declared quirks are named.\n"
    yield "| level | | " + " | ".join(d["name"] for d in devices) + " |"
    yield "|---|---|" + "---|" * len(devices)
    for level, title in LEVELS.items():
        yield f"| {level} | {title} | " + " | ".join(_cell(d["counts"][str(level)]) for d in devices) + " |"
    yield ""


def _cell(counts: dict[str, int]) -> str:
    text = str(counts["passed"]) + (f" ({counts['skipped']})" if counts["skipped"] else "")
    return text + "".join(f", {counts[o]} {o}" for o in ("failed", "quirk") if counts[o])


def _order(device: Summary) -> tuple[int, str, str]:
    driver = device["driver"]
    return FIRST.index(driver) if driver in FIRST else len(FIRST), device["id"], device["name"]


def main(given: Sequence[str]) -> int:
    """Also ``--print``: the page to standard output, nothing written."""
    folder = DOCS / "support"
    folder.mkdir(exist_ok=True)
    for report in [] if given == ["--print"] else given:
        for summary in summaries(json.loads(Path(report).read_text("utf-8"))):
            slug = re.sub(r"[^a-z0-9]+", "-", f"{summary['driver']} {summary['name']}".lower()).strip("-")
            (folder / f"{slug}.json").write_text(json.dumps(summary, indent=1, ensure_ascii=False) + "\n", "utf-8")
    found = sorted((json.loads(f.read_text("utf-8")) for f in folder.glob("*.json")), key=_order)
    if given == ["--print"]:
        sys.stdout.buffer.write(page(found).encode())
    else:
        (DOCS / "support.md").write_text(page(found), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
