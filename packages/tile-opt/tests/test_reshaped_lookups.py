"""Values that are looked up in a reshaped input are read where they are, whatever else reads the reshape."""

from __future__ import annotations

import numpy as np
import pytest
import tile_lang
from lowering_support import execute
from tile_ir.dtype import DType
from tile_ir.program.nodes import TensorType
from tile_ir.stripe.printer import print_program
from tile_ir.target import Target
from tile_opt.compiler import compile
from tile_opt.proof import prove

X = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
AT = np.array([7, 59, 0, 31, 90, -4], np.int32)
WANT = X.reshape(-1)[np.clip(AT, 0, 59)]
HEADER = "function (X[A, B, C], I[N]) -> "
ONCE = HEADER + "(O) { Z = reshape(X, 60); O = gather(Z, I); }"
TWICE = HEADER + "(O) { Y = reshape(X, 12, 5); Z = reshape(Y, 60); O = gather(Z, I); }"
ALSO = HEADER + "(O, P) { Z = reshape(X, 60); O = gather(Z, I); P = Z * 2; }"
GIVEN_BACK = HEADER + "(O, Z) { Z = reshape(X, 60); O = gather(Z, I); }"
COMPUTED = HEADER + "(O) { Y = X + 1; Z = reshape(Y, 60); O = gather(Z, I); }"


@pytest.mark.parametrize(
    ("source", "is_view", "wanted"),
    [
        (ONCE, True, {"O": WANT}),
        (TWICE, True, {"O": WANT}),
        (ALSO, True, {"O": WANT, "P": 2 * X.reshape(-1)}),
        (GIVEN_BACK, True, {"O": WANT, "Z": X.reshape(-1)}),
        (COMPUTED, False, {"O": WANT + 1}),
    ],
    ids=["once", "twice", "also", "given back", "computed"],
)
def test_lookups_read_what_was_reshaped(source: str, is_view: bool, wanted: dict[str, np.ndarray]) -> None:
    types = {"X": TensorType(DType.FLOAT32, X.shape), "I": TensorType(DType.INT32, AT.shape)}
    compiled = compile(tile_lang.bind(tile_lang.parse(source), types), Target.preset("cpu"))
    assert ("X_reshaped" in print_program(compiled.stripe)) == is_view
    found = execute(compiled.kernels, {"X": X, "I": AT})
    for name, want in wanted.items():
        np.testing.assert_array_equal(found[name], want)
    assert prove(compiled.stripe_initial, compiled.stripe).proved
