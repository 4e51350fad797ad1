"""PyTorch's own samples of its operators (OpInfo), computed by Tile and by PyTorch, forward and backward.

As a command it runs those whose names match: ``python op_samples.py 'nn.functional.*' --dtype float32 -v``;
``--write`` renews the record in op_samples.json.
"""

from __future__ import annotations

import argparse
import json
import logging
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from functorch.compile import aot_function, make_boxed_func
from tile_runtime.evaluator import Evaluator
from tile_torch.backend import ATTENTION, boxed
from tile_torch.decompositions import decompositions
from tile_torch.executable import Executable
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.nn.attention import sdpa_kernel
from torch.utils._pytree import tree_flatten, tree_unflatten

DTYPES = (
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
)
SAMPLES = {torch.float32: 3}
"""Samples of an operator that are taken, evenly from all; of other dtypes there is one."""
TIED = ("sort", "argsort", "topk", "kthvalue", "median", "nanmedian")
"""Operators that give places of elements in an order."""
RESULTS = Path(__file__).with_suffix(".json")
"""What came of every sample, as `--write` found it."""
TOLERANCE = {torch.float32: 3e-5, torch.float64: 1e-10, torch.float16: 6e-3, torch.bfloat16: 5e-2}
"""How far results may be off, as part of the largest one."""

Results = tuple[list[Any], list[Any]]
"""Results and gradients."""


@dataclass(frozen=True)
class Sample:
    """One call of an operator."""

    name: str
    """``operator.variant``"""
    dtype: torch.dtype
    number: int
    function: Callable[..., Any]
    operands: Any
    """(input, arguments, named arguments)"""

    @property
    def id(self) -> str:
        return f"{self.name} {str(self.dtype).removeprefix('torch.')} {self.number}"


@cache
def operators() -> dict[str, Any]:
    """PyTorch's descriptions of its operators by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    return {f"{op.name}.{op.variant_test_name}".rstrip("."): op for op in op_db}


def samples(name: str, dtype: torch.dtype) -> Iterator[Sample]:
    """The samples of an operator that are taken; they are the same each time."""
    operator = operators()[name]
    if dtype not in operator.supported_dtypes("cpu"):
        return
    torch.manual_seed(0)
    gradient = operator.supports_autograd and dtype.is_floating_point
    every = list(operator.sample_inputs("cpu", dtype, requires_grad=gradient))
    count = min(SAMPLES.get(dtype, 1), len(every))
    for number in (k * len(every) // count for k in range(count)):
        sample = every[number]
        yield Sample(name, dtype, number, operator, (sample.input, sample.args, sample.kwargs))


@dataclass
class Outcome:
    """What came of a sample: why it failed, which operators it consists of, whether there were gradients."""

    why: str | None = None
    operators: set[Any] = field(default_factory=set[Any])
    gradient: bool = False
    void: bool = False
    """PyTorch itself cannot compute it from copies of the tensors."""


def _expected(sample: Sample) -> Results | None:
    try:
        return _both(sample, sample_function(sample))
    except RuntimeError:
        return None


def outcome(sample: Sample, device: str = "llvm") -> Outcome:
    """Computes a sample twice and compares."""
    found = Outcome()
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = _expected(sample)
            if expected is None:
                return Outcome(void=True)
            actual = _both(sample, _compiled(sample, found, device))
        found.gradient = bool(expected[1])
        if sample.name in TIED and not sample.dtype.is_floating_point:
            expected, actual = _without_places(expected), _without_places(actual)
        found.why = _difference(expected, actual)
        if found.why and _is_as_good(sample, expected, actual):
            found.why = None
    except Exception as error:  # whatever breaks is an outcome
        found.why = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    finally:
        logging.disable(logging.NOTSET)
    return found


def _without_places(results: Results) -> Results:
    """Integers and truth values have equal ones among them, whose order PyTorch leaves open."""
    return results[0][:1] if len(results[0]) > 1 else [], results[1]


def _is_as_good(sample: Sample, expected: Results, actual: Results) -> bool:
    """Whether results that differ are those of PyTorch's own decomposition, or no farther from float64's than PyTorch's are."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if _difference(_both(sample, _decomposed(sample)), actual) is None:
            return True
        if sample.dtype not in (torch.float32, torch.float16, torch.bfloat16):
            return False
        exact = _both(widened(sample), sample_function(widened(sample)))
    pairs = zip([*exact[0], *exact[1]], [*expected[0], *expected[1]], [*actual[0], *actual[1]], strict=True)
    return all(_no_farther(*three) for three in pairs)


def _no_farther(exact: Any, expected: Any, actual: Any) -> bool:
    if exact is None or actual is None or not exact.dtype.is_floating_point:
        return _apart(expected, actual) is None
    own, other = ((exact - v.double()).abs().nan_to_num(0, 0).max().item() for v in (expected, actual))
    return _apart(exact.to(actual.dtype), actual) is None or other <= 4 * own


def widened(sample: Sample) -> Sample:
    """The sample in float64."""

    def wide(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        return value.detach().double().requires_grad_(value.requires_grad)

    flat, form = tree_flatten(sample.operands)
    return replace(sample, operands=tree_unflatten([wide(v) for v in flat], form), dtype=torch.float64)


def _decomposed(sample: Sample) -> Callable[..., Any]:
    """The operators that Tile is given, computed by PyTorch."""

    def compiler(graph: torch.fx.GraphModule, _: Any) -> Any:
        return make_boxed_func(graph.forward)

    return aot_function(sample_function(sample), compiler, compiler, decompositions=decompositions())


def _tensors(sample: Sample) -> tuple[list[Any], Any, list[int]]:
    flat, form = tree_flatten(sample.operands)
    return flat, form, [k for k, value in enumerate(flat) if isinstance(value, torch.Tensor)]


def sample_function(sample: Sample) -> Callable[..., Any]:
    """The call as a function of its tensors."""
    flat, form, places = _tensors(sample)

    def function(*tensors: torch.Tensor) -> Any:
        given = list(flat)
        for place, tensor in zip(places, tensors, strict=True):
            given[place] = tensor
        first, arguments, named = tree_unflatten(given, form)
        return sample.function(first, *arguments, **named)

    return function


def _compiled(sample: Sample, found: Outcome, device: str) -> Callable[..., Any]:
    evaluator = Evaluator(device)

    def compiler(graph: torch.fx.GraphModule, arguments: Sequence[Any]) -> Any:
        found.operators |= {n.target for n in graph.graph.nodes if n.op == "call_function"}
        executable = Executable(graph, evaluator)
        executable.plan(arguments)
        return boxed(executable)

    function = aot_function(
        sample_function(sample),
        compiler,
        compiler,
        decompositions=decompositions(),
        partition_fn=min_cut_rematerialization_partition,
    )

    def call(*tensors: torch.Tensor) -> Any:
        with sdpa_kernel(ATTENTION):
            return function(*tensors)

    return call


def _both(sample: Sample, function: Callable[..., Any]) -> tuple[list[Any], list[Any]]:
    """Results, and gradients of the tensors that want one, for random gradients of the results."""
    flat, _, places = _tensors(sample)
    tensors = [flat[k].detach().clone().requires_grad_(flat[k].requires_grad) for k in places]
    torch.manual_seed(1)
    results = [r for r in tree_flatten(function(*tensors))[0] if isinstance(r, torch.Tensor)]
    ends = [r for r in results if r.requires_grad and r.is_floating_point()]
    wanted = [t for t in tensors if t.requires_grad]
    if not ends or not wanted:
        return results, []
    torch.manual_seed(2)
    gradients = torch.autograd.grad(ends, wanted, [torch.randn_like(e) for e in ends], allow_unused=True)
    return results, list(gradients)


def _difference(expected: tuple[list[Any], list[Any]], actual: tuple[list[Any], list[Any]]) -> str | None:
    for what, own, other in (("result", *_pair(expected, actual, 0)), ("gradient", *_pair(expected, actual, 1))):
        if len(own) != len(other):
            return f"{len(other)} {what}s instead of {len(own)}"
        for k, (e, a) in enumerate(zip(own, other, strict=True)):
            why = _apart(e, a)
            if why:
                return f"{what} {k}: {why}"
    return None


def _pair(expected: Any, actual: Any, k: int) -> tuple[list[Any], list[Any]]:
    return expected[k], actual[k]


def _apart(expected: Any, actual: Any) -> str | None:
    """In which way two tensors differ."""
    if expected is None or actual is None:
        there = expected if actual is None else actual  # no gradient is as good as one of zeros
        return None if there is None or not there.any() else "only one has a gradient"
    if (expected.shape, expected.dtype) != (actual.shape, actual.dtype):
        return f"{actual.dtype}{list(actual.shape)} instead of {expected.dtype}{list(expected.shape)}"
    expected, actual = expected.detach(), actual.detach()
    if not expected.dtype.is_floating_point:
        return None if torch.equal(expected, actual) else f"{int((expected != actual).sum())} elements differ"
    wide, other = expected.double(), actual.double()
    finite = wide.isfinite()
    if (
        not torch.equal(wide[~finite].nan_to_num(7.0), other[~finite].nan_to_num(7.0))
        or not other[finite].isfinite().all()
    ):
        return "infinities or NaNs differ"
    if not finite.any():
        return None
    apart = (wide - other)[finite].abs().max().item()
    scale = max(wide[finite].abs().max().item(), torch.finfo(expected.dtype).tiny)
    return None if apart <= TOLERANCE[expected.dtype] * scale else f"off by {apart / scale:.1e} of the largest"


# --- records ------------------------------------------------------------------------------------------


@dataclass
class Record:
    """What came of the samples of an operator of PyTorch's in one dtype."""

    passing: int = 0
    failing: dict[str, int] = field(default_factory=dict[str, int])
    """How many fail for each reason."""
    operators: set[str] = field(default_factory=set[str])
    """The operators of ATen that samples that pass consist of."""
    gradients: set[str] = field(default_factory=set[str])
    """Those among them in samples whose gradients agree."""


def record(name: str, dtype: torch.dtype, device: str = "llvm") -> Record:
    """Runs the samples of an operator."""
    made = Record()
    for sample in samples(name, dtype):
        found = outcome(sample, device)
        if found.void:
            continue
        if found.why is None:
            made.passing += 1
            names = {str(target) for target in found.operators if isinstance(target, torch._ops.OpOverload)}
            made.operators |= names
            made.gradients |= names if found.gradient else set()
        else:
            made.failing[found.why] = made.failing.get(found.why, 0) + 1
    return made


def key(name: str, dtype: torch.dtype) -> str:
    return f"{name} {str(dtype).removeprefix('torch.')}"


@cache
def recorded() -> dict[str, Record]:
    """The records by operator and dtype."""
    text = RESULTS.read_text(encoding="utf-8") if RESULTS.exists() else "{}"
    return {
        k: Record(v["passing"], v["failing"], set(v["operators"]), set(v["gradients"]))
        for k, v in json.loads(text).items()
    }


def write(records: dict[str, Record]) -> None:
    """Keeps records, one line for each."""
    lines = [
        f"{json.dumps(k)}: "
        + json.dumps(
            {
                "passing": r.passing,
                "failing": r.failing,
                "operators": sorted(r.operators),
                "gradients": sorted(r.gradients),
            }
        )
        for k, r in sorted(records.items())
        if r.passing or r.failing
    ]
    RESULTS.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description="runs samples whose operator matches")
    parser.add_argument("pattern", help="a regular expression of operators' names")
    parser.add_argument("--dtype", default="float32", help="dtypes, with commas; or all")
    parser.add_argument("--device", default="llvm")
    parser.add_argument("--write", action="store_true", help="keep what came of it in op_samples.json")
    parser.add_argument("-v", action="store_true", help="name operators that pass, too")
    chosen = parser.parse_args(arguments)
    dtypes = DTYPES if chosen.dtype == "all" else [getattr(torch, d) for d in chosen.dtype.split(",")]
    kept, failed, total = dict(recorded()), 0, 0
    for dtype in dtypes:
        for name in operators():
            if not re.fullmatch(chosen.pattern, name):
                continue
            made = kept[key(name, dtype)] = record(name, dtype, chosen.device)
            if chosen.write:
                write(kept)
            total, failed = total + made.passing + sum(made.failing.values()), failed + sum(made.failing.values())
            if made.failing or chosen.v:
                whys = "".join(f"\n    {count} {why[:220]}" for why, count in made.failing.items())
                print(f"{key(name, dtype)} {made.passing} pass{whys}", flush=True)
    print(f"{total - failed} of {total} pass")


if __name__ == "__main__":
    main(sys.argv[1:])
