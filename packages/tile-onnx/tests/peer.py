"""One node, run by Tile and by ONNX Runtime (or by ONNX's reference, where that has no kernel for the dtype)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import tile_onnx
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from tile_onnx.host import NotEvaluated
from tile_onnx.language import Language
from tile_onnx.reading import read
from tile_onnx.stepwise import Stepwise

Array = np.ndarray[Any, Any]

FLOATS = ("float32", "float64", "float16")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
SHAPES = arrays_of.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)
TOLERANCES = {"float16": (4e-3, 4e-3), "float32": (2e-5, 2e-6), "float64": (1e-9, 1e-11)}

onnxruntime.set_default_logger_severity(4)


def random(seed: int) -> Any:
    """A generator of random numbers."""
    return np.random.default_rng(seed)


def numbers(dtype: str, shape: Sequence[int], seed: int, special: bool = False, scale: float = 3.0) -> Array:
    """Normal floats, small integers or truth values; `special` puts infinities, NaN and zeros among floats."""
    rng = np.random.default_rng(seed)
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return np.asarray(rng.integers(0, 2, shape), np.bool_)
    if kind.kind in "iu":
        low = 0 if kind.kind == "u" else -20
        return np.asarray(rng.integers(low, 21, shape), kind)
    values = np.asarray(rng.standard_normal(shape) * scale, kind)
    if special:
        chosen = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 1.0], kind)
        values = np.asarray(np.where(rng.random(shape) < 0.3, rng.choice(chosen, shape), values))
    return values


def a_model(
    op: str,
    inputs: Sequence[Array | None],
    attributes: Mapping[str, Any] | None = None,
    opset: int = 21,
    domain: str = "",
    outputs: int = 1,
    constant: Sequence[int] = (),
) -> onnx.ModelProto:
    """A model of one node; the inputs numbered in `constant` are its own weights."""
    names = ["" if value is None else f"x{k}" for k, value in enumerate(inputs)]
    node = helper.make_node(op, names, [f"y{k}" for k in range(outputs)], domain=domain, **(attributes or {}))
    feeds = [
        helper.make_tensor_value_info(f"x{k}", helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for k, v in enumerate(inputs)
        if v is not None and k not in constant
    ]
    weights = [numpy_helper.from_array(v, f"x{k}") for k, v in enumerate(inputs) if v is not None and k in constant]
    results = [onnx.ValueInfoProto(name=f"y{k}") for k in range(outputs)]
    graph = helper.make_graph([node], op, feeds, results, weights)
    opsets = [
        helper.make_opsetid("", opset),
        *([helper.make_opsetid(domain, 3 if domain == "ai.onnx.ml" else 1)] if domain else []),
    ]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def outputs_of(model: onnx.ModelProto, feeds: Mapping[str, Array], reference: bool = False) -> list[Array]:
    """By ONNX Runtime; by ONNX's reference on request, and where ONNX Runtime has not implemented the node."""
    try:
        if reference:
            raise NotImplementedError
        return onnxruntime.InferenceSession(model.SerializeToString()).run(None, dict(feeds))
    except Exception as problem:
        if "NOT_IMPLEMENTED" not in str(problem) and "NotImplemented" not in type(problem).__name__:
            raise
    with np.errstate(all="ignore"):
        return ReferenceEvaluator(model).run(None, dict(feeds))


def reference(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> Array:
    """The first output, by ONNX's reference."""
    run: Any = ReferenceEvaluator(model).run
    return run(None, dict(feeds))[0]


def check(op: str, inputs: Sequence[Array | None], *more: Any, constant: Sequence[int] = (), **settings: Any) -> None:
    """Tile and its peer agree, in dtypes and shapes, too. `rtol` and `atol` replace those of the dtype.

    `reference` compares with ONNX's reference instead of ONNX Runtime.
    """
    reference = settings.pop("reference", False)
    inputs = [None if value is None else np.asarray(value) for value in inputs]
    limits = {name: settings.pop(name) for name in ("rtol", "atol") if name in settings}
    model = a_model(op, inputs, *more, constant=constant, **settings)
    feeds = {f"x{k}": v for k, v in enumerate(inputs) if v is not None and k not in constant}
    wanted = outputs_of(model, feeds, reference)
    alike(list(tile_onnx.load(model).run(feeds).values()), wanted, limits)
    stepwise = by_steps(model, feeds)
    if stepwise is not None:
        alike(stepwise, wanted, limits)


def alike(found: Sequence[Array], wanted: Sequence[Array], limits: Mapping[str, float]) -> None:
    """Dtypes, shapes and numbers agree."""
    assert len(found) == len(wanted)
    for ours, theirs in zip(found, wanted, strict=True):
        theirs = np.asarray(theirs)
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        rtol, atol = TOLERANCES.get(str(ours.dtype), (0, 0))
        np.testing.assert_allclose(
            ours.astype(np.float64) if ours.dtype == np.float16 else ours,
            theirs.astype(np.float64) if ours.dtype == np.float16 else theirs,
            rtol=limits.get("rtol", rtol),
            atol=limits.get("atol", atol),
        )


def by_steps(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array] | None:
    """The outputs of a model without a program; None where it needs one."""
    imported = read(model)
    language = Language(imported.opsets, imported.functions)
    try:
        return Stepwise(imported.graph, language).run(dict(feeds), math.inf)
    except NotEvaluated:
        return None


SEEDS = st.integers(0, 2**16)
