"""ONNX's backend test cases, run on Tile.

As a command it runs those whose names match: `python backend_cases.py softmax --device llvm -v`.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import onnx
from numpy.lib.stride_tricks import sliding_window_view
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner
from onnx.reference.ops import op_pool_common
from tile_ir.diagnostics import TileError

KINDS = ("node", "real", "simple", "pytorch-converted", "pytorch-operator")


@cache
def cases() -> dict[str, Any]:
    """Every case of the pinned onnx by name."""
    with warnings.catch_warnings(), patch.object(op_pool_common, "pool", pool):
        warnings.simplefilter("ignore")
        return {case.name: case for kind in KINDS for case in load_model_tests(kind=kind)}


their_pool = op_pool_common.pool
POOLS: dict[str, Callable[[Any, Any, float], Any]] = {
    "AVG": lambda x, axes, p: np.average(x, axes),
    "MAX": lambda x, axes, p: np.max(x, axes),
    "LPPOOL": lambda x, axes, p: np.sum(np.abs(x) ** p, axes) ** (1 / p),
}


def pool(padded: Any, shape: Any, kernel: Any, strides: Any, out: Any, kind: str, *others: Any, **named: Any) -> Any:
    """What cases expect of pooling. ONNX reduces 90,000 windows one by one; windows without borders are reduced at once."""
    if others or named.keys() - {"p"} or padded.shape != tuple(shape):
        return their_pool(padded, shape, kernel, strides, out, kind, *others, **named)
    inner = tuple(range(2, padded.ndim))
    windows = sliding_window_view(padded, tuple(kernel), inner)
    windows = windows[(slice(None), slice(None), *(slice(None, None, s) for s in strides))]
    axes = tuple(range(padded.ndim, windows.ndim))
    return POOLS[kind](windows, axes, named.get("p", 1)).astype(padded.dtype)


def model_of(case: Any) -> onnx.ModelProto:
    if case.model is not None:
        return case.model
    if case.model_dir is not None:
        return onnx.load(Path(case.model_dir) / "model.onnx")
    return onnx.load(light_path(case))


def light_path(case: Any) -> Path:
    """The file of one of the real networks inside the onnx package."""
    return Path(onnx.__file__).parent.parent / case.url


def operators(case: Any) -> frozenset[str]:
    """Those of a case's graph; none where its model is a file."""
    return frozenset(node.op_type for node in case.model.graph.node) if case.model is not None else frozenset()


def data_sets(case: Any, model: onnx.ModelProto) -> Iterator[tuple[list[Any], list[Any]]]:
    """Inputs and expected outputs."""
    if case.data_sets is not None:
        yield from (([_plain(i) for i in ins], [_plain(o) for o in outs]) for ins, outs in case.data_sets)
    elif case.model_dir is not None:
        runner = Runner.__new__(Runner)
        for folder in sorted(Path(case.model_dir).glob("test_data_set*")):
            yield (
                _loaded(runner, folder, "input", model.graph.input),
                _loaded(runner, folder, "output", model.graph.output),
            )
    else:
        yield _light(case, model)


def _loaded(runner: Runner, folder: Path, kind: str, infos: Any) -> list[Any]:
    found: list[Any] = []
    for k in range(len(list(folder.glob(f"{kind}_*.pb")))):
        runner._load_proto(str(folder / f"{kind}_{k}.pb"), found, infos[k].type)
    return found


def _light(case: Any, model: onnx.ModelProto) -> tuple[list[Any], list[Any]]:
    weights = {i.name for i in model.graph.initializer}
    inputs = [Runner.generate_dummy_data(i, seed=0, name=case.name) for i in model.graph.input if i.name not in weights]
    path = light_path(case)
    files = [path.with_name(f"{path.stem}_output_{k}.pb") for k in range(len(model.graph.output))]
    return inputs, [numpy_helper.to_array(onnx.load_tensor(f)) for f in files]


def _plain(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def run_case(case: Any, device: str) -> None:
    """Raises where the outputs are not those expected."""
    from tile_onnx.backend import TileBackend

    model = model_of(case)
    prepared = TileBackend.prepare(model, device)
    for inputs, expected in data_sets(case, model):
        with np.errstate(all="ignore"):
            found = prepared.run(inputs)
            compare(expected, found, case)


def compare(expected: Any, found: Any, case: Any) -> None:
    """Raises where outputs differ; the suite's own comparison cannot take sequences of scalars."""
    assert len(expected) == len(found), f"{len(found)} outputs instead of {len(expected)}"
    for wanted, value in zip(expected, found, strict=True):
        if isinstance(wanted, (list, tuple)):
            compare(wanted, value, case)
        elif wanted is None:
            assert value is None
        else:
            Runner.assert_similar_outputs([wanted], [value], case.rtol, case.atol)


def failure(case: Any, device: str) -> str | None:
    """In one line why a case does not pass; None where it does."""
    try:
        run_case(case, device)
    except Exception as problem:
        text = problem.diagnostics[0].message if isinstance(problem, TileError) else str(problem)
        return f"{type(problem).__name__}: {' '.join(text.split())[:160]}"
    return None


def listed(device: str) -> dict[str, str]:
    """The cases that are known not to pass on a device, with the reason."""
    lines = list_of(device).read_text("utf-8").splitlines()
    return {name: why for name, _, why in (line.partition(": ") for line in lines if not line.startswith("#"))}


def list_of(device: str) -> Path:
    return Path(__file__).parent / "backend" / f"{device}.txt"


SLOW = "slow: "
"""How the reason of a case begins that no run tries on a device, for an interpreter would take minutes."""

HEAD = """# Cases of ONNX's backend suite that do not pass on {device}, and why. A case that passes although it stands here fails
# the tests, as does one that fails and is missing: `python backend_cases.py --device {device} --write` mends the list.
"""


def write(device: str, failures: dict[str, str], tried: set[str]) -> None:
    """Rewrites the list for what was tried; reasons that stand there stay."""
    old = listed(device) if list_of(device).exists() else {}
    kept = {n: why for n, why in old.items() if n not in tried}
    found = kept | {n: old.get(n, why) for n, why in failures.items()}
    lines = [f"{name}: {found[name]}\n" for name in sorted(found)]
    list_of(device).write_text(HEAD.format(device=device) + "".join(lines), "utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description="Run cases of ONNX's backend suite on Tile.")
    parser.add_argument("patterns", nargs="*", help="regular expressions; a case that one of them finds is run")
    parser.add_argument("--device", default="llvm")
    parser.add_argument("--every", type=int, default=1, help="only each so many-th case")
    parser.add_argument("--write", action="store_true", help="rewrite the list of cases that do not pass")
    parser.add_argument("-v", "--verbose", action="store_true", help="tracebacks")
    options = parser.parse_args()
    chosen = [c for n, c in cases().items() if not options.patterns or any(re.search(p, n) for p in options.patterns)]
    failures: dict[str, str] = {}
    slow = {n for n, why in listed(options.device).items() if why.startswith(SLOW)}
    for case in chosen[:: options.every]:
        if case.name in slow:
            continue
        start = time.process_time()
        why = failure(case, options.device)
        if why is not None:
            failures[case.name] = why
            print(f"{case.name}: {why}", flush=True)
            if options.verbose:
                show(case, options.device)
        if time.process_time() - start > 3:
            print(f"{case.name}: {time.process_time() - start:.1f} CPU seconds", flush=True)
    tried = {c.name for c in chosen[:: options.every]} - slow
    print(f"{len(tried) - len(failures)} of {len(tried)} pass")
    if options.write:
        write(options.device, failures, tried)
    return bool(failures)


def show(case: Any, device: str) -> None:
    try:
        run_case(case, device)
    except Exception:
        traceback.print_exc()


if __name__ == "__main__":
    sys.exit(main())
