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
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

KINDS = ("node", "real", "simple", "pytorch-converted", "pytorch-operator")


@cache
def cases() -> dict[str, Any]:
    """Every case of the pinned onnx by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {case.name: case for kind in KINDS for case in load_model_tests(kind=kind)}


def model_of(case: Any) -> onnx.ModelProto:
    if case.model is not None:
        return case.model
    if case.model_dir is not None:
        return onnx.load(Path(case.model_dir) / "model.onnx")
    return onnx.load(light_path(case))


def light_path(case: Any) -> Path:
    """The file of one of the real networks inside the onnx package."""
    return Path(onnx.__file__).parent.parent / case.url


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


def main() -> int:
    parser = argparse.ArgumentParser(description="Run cases of ONNX's backend suite on Tile.")
    parser.add_argument("patterns", nargs="*", help="regular expressions; a case that one of them finds is run")
    parser.add_argument("--device", default="llvm")
    parser.add_argument("-v", "--verbose", action="store_true", help="tracebacks")
    options = parser.parse_args()
    chosen = [c for n, c in cases().items() if not options.patterns or any(re.search(p, n) for p in options.patterns)]
    passed = 0
    for case in chosen:
        start = time.process_time()
        try:
            run_case(case, options.device)
            passed += 1
        except Exception as problem:
            print(f"{case.name}: {type(problem).__name__}: {' '.join(str(problem).split())[:300]}", flush=True)
            if options.verbose:
                traceback.print_exc()
        if time.process_time() - start > 3:
            print(f"{case.name}: {time.process_time() - start:.1f} CPU seconds", flush=True)
    print(f"{passed} of {len(chosen)} pass")
    return passed != len(chosen)


if __name__ == "__main__":
    sys.exit(main())
