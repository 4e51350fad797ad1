"""Scatters as graphics processors are given them, run by an OpenCL device: items merge at once into cells that data chooses."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tile_hal
import tile_opt
from hal_opencl.families import family_target
from stack import bind, on_device
from tile_hal.interfaces import Device
from tile_ir.dtype import from_numpy
from tile_ir.emit.walker import walk_statements
from tile_ir.program.nodes import TensorType
from tile_ir.semtree.nodes import Atomic
from tile_lang.evaluate import evaluate

Array = npt.NDArray[Any]
ROWS = "function (U[K, C], I[K], D[N, C]) -> (O) {{ O[I[k], c : N, C] = {0}(U[k, c]){1}; }}"
ALONG = "function (U[N, K], J[N, K], D[N, C]) -> (O) {{ O[n, J[n, k] : N, C] = {0}(U[n, k]){1}; }}"
READ = """function (U[K, C], I[K], D[N, C]) -> (O, G) {{
    E = U * 2; S[I[k], c : N, C] = {0}(E[k, c]){1}; O = S + D; G[k, c : K, C] = =(O[I[k], c]); }}"""
SOURCES = {"rows": ROWS, "along an axis": ALONG, "between others": READ}


def devices() -> list[Device]:
    return [d for d in tile_hal.devices() if d.id.startswith("opencl") and d.capabilities.executes]


def inputs(source: str, dtype: str) -> dict[str, Array]:
    random = np.random.default_rng(0)
    shape = (23, 300) if source == ALONG else (700, 9)
    subscripts = {"J": random.integers(-2, 9, shape)} if source == ALONG else {"I": random.integers(-2, 25, 700)}
    updates = random.normal(0, 40, shape).astype(dtype)
    return {"U": updates, **subscripts, "D": random.normal(0, 40, (23, 9)).astype(dtype)}


@pytest.mark.skipif(not devices(), reason="no OpenCL device")
@pytest.mark.parametrize(
    ("name", "dtype", "family"),
    [
        ("rows", "float32", "gpu-amd"),
        ("rows", "int8", "gpu-nvidia"),
        ("along an axis", "float32", "gpu-nvidia"),
        ("between others", "float64", "gpu-nvidia"),
        ("between others", "int32", "gpu-amd"),
    ],
)
def test_values_are_the_references(name: str, dtype: str, family: str) -> None:
    given = inputs(SOURCES[name], dtype)
    for agg, default in (("+", ""), ("<", " default D"), ("=", " default D")):
        program = bind(
            SOURCES[name].format(agg, default), {n: TensorType(from_numpy(a.dtype), a.shape) for n, a in given.items()}
        )
        compiled = tile_opt.compile(program, family_target(family).resolved(cores=4), verify=True)
        functions = [k.function for k in compiled.kernels.kernels if k.function]
        assert any(isinstance(s, Atomic) for f in functions for s in walk_statements(f.body))
        with np.errstate(all="ignore"):
            expected = evaluate(program, given)
            found = on_device(devices()[0], compiled, given)
        for output in expected:
            np.testing.assert_allclose(found[output], expected[output], 2e-4, 1e-3)
