"""What every builtin, operator, aggregation and border does, each with an example: data for the reference and for editors.

An example is the body of a function whose output is Z, its inputs, and what comes out; ``tests/test_reference.py`` runs all of them
and holds the table to `tile_lang.builtins.BUILTINS` and `tile_ir.ops.OPS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, nan, pi
from typing import Any

import numpy as np
import numpy.typing as npt
from tile_ir.frozen import frozen

Array = npt.NDArray[Any]


@frozen
class Entry:
    """How one thing of the language is written, what it means, and an example."""

    call: str
    """As it is written: ``atan2(y, x)``."""
    says: str
    """What it gives, in a phrase without a full stop."""
    body: str
    """Statements that define Z."""
    inputs: Mapping[str, Any]
    """Nested lists by parameter, perhaps with dimensions: ``X[N]``. Numbers with a point are float32, others int32."""
    gives: Any
    """The elements of Z as nested lists; None where they are random."""

    @property
    def source(self) -> str:
        """The example as a Tile function."""
        return f"function ({', '.join(self.inputs)}) -> (Z) {{ {self.body} }}"

    @property
    def arrays(self) -> dict[str, Array]:
        """The example's inputs by name."""
        return {name.partition("[")[0]: _array(value) for name, value in self.inputs.items()}


def _array(value: Any) -> Array:
    array: Array = np.asarray(value)
    narrow = {"f": np.float32, "i": np.int32}
    return array.astype(narrow[array.dtype.kind]) if array.dtype.kind in narrow else array


def _of(call: str, says: str, body: str, gives: Any, **inputs: Any) -> Entry:
    body = body if ";" in body else f"Z = {body};"
    return Entry(call, says, body, {_NAMED.get(k, k): v for k, v in inputs.items()}, gives)


_NAMED = {"XN": "X[N]", "XNM": "X[N, M]", "YN": "Y[N]"}
"""Parameters with dimensions, by keyword."""


def _one(name: str, says: str, *pairs: tuple[float, float]) -> tuple[str, Entry]:
    """A function of one float: arguments and values."""
    return name, _of(f"{name}(x)", says, f"{name}(X)", [b for _, b in pairs], X=[a for a, _ in pairs])


_STATE = np.random.default_rng(0).integers(0, 1 << 32, (3, 2048), np.uint32)
_HALF_PI = pi / 2

BUILTINS: Mapping[str, Entry] = dict(
    (
        _one("exp", "e to the power of x", (0.0, 1.0), (1.0, np.e)),
        _one("expm1", "exp(x) − 1, with all its digits near 0", (0.0, 0.0), (1e-8, 1e-8)),
        _one("log", "the natural logarithm; −∞ at 0, NaN below", (1.0, 0.0), (0.0, -inf)),
        _one("log1p", "log(1 + x), with all its digits near 0", (0.0, 0.0), (1e-8, 1e-8)),
        _one("sqrt", "the square root; NaN below 0", (2.25, 1.5), (-1.0, nan)),
        _one("recip", "1 / x", (4.0, 0.25), (0.0, inf)),
        _one("sin", "the sine of an angle in radians", (0.0, 0.0), (_HALF_PI, 1.0)),
        _one("cos", "the cosine of an angle in radians", (0.0, 1.0), (pi, -1.0)),
        _one("tan", "the tangent of an angle in radians", (0.0, 0.0), (pi / 4, 1.0)),
        _one("asin", "the angle from −π/2 to π/2 whose sine is x", (1.0, _HALF_PI), (2.0, nan)),
        _one("acos", "the angle from 0 to π whose cosine is x", (1.0, 0.0), (-1.0, pi)),
        _one("atan", "the angle from −π/2 to π/2 whose tangent is x", (1.0, pi / 4), (inf, _HALF_PI)),
        _one("sinh", "the hyperbolic sine", (0.0, 0.0), (1.0, np.sinh(1.0))),
        _one("cosh", "the hyperbolic cosine", (0.0, 1.0), (1.0, np.cosh(1.0))),
        _one("tanh", "the hyperbolic tangent", (0.0, 0.0), (inf, 1.0)),
        _one("asinh", "the inverse of sinh", (0.0, 0.0), (1.0, np.arcsinh(1.0))),
        _one("acosh", "the inverse of cosh, from 0 on; NaN below 1", (1.0, 0.0), (2.0, np.arccosh(2.0))),
        _one("atanh", "the inverse of tanh; ±∞ at ±1, NaN beyond", (0.0, 0.0), (1.0, inf)),
        _one("erf", "2/√π times the integral of exp(−t²) from 0 to x", (0.0, 0.0), (1.0, 0.8427007929)),
        _one("erfc", "1 − erf(x), with all its digits for large x", (0.0, 1.0), (3.0, 2.209049700e-05)),
        _one("ceil", "the next whole number above", (1.2, 2.0), (-1.2, -1.0)),
        _one("floor", "the next whole number below", (1.2, 1.0), (-1.2, -2.0)),
        _one("trunc", "the next whole number towards 0", (1.8, 1.0), (-1.8, -1.0)),
        _one("round", "the nearest whole number, halves away from 0", (2.5, 3.0), (-0.5, -1.0)),
        _one("round_even", "the nearest whole number, halves to the even one", (2.5, 2.0), (3.5, 4.0)),
        _one("sigmoid", "1 / (1 + exp(−x))", (0.0, 0.5), (inf, 1.0)),
        _one("silu", "x · sigmoid(x)", (0.0, 0.0), (1.0, 0.7310585786)),
        _one("gelu", "x times the share of a normal distribution below x", (0.0, 0.0), (1.0, 0.8413447461)),
        _one("softplus", "log(1 + exp(x)), finite for large x", (0.0, np.log(2.0)), (100.0, 100.0)),
        _one("relu", "x where it is positive, else 0; NaN stays NaN", (-2.0, 0.0), (3.0, 3.0)),
        _one("sign", "−1, 0 or 1", (-2.5, -1.0), (0.0, 0.0), (7.0, 1.0)),
        _one("abs", "the absolute value", (-1.5, 1.5), (2.0, 2.0)),
        _one("neg", "−x", (1.5, -1.5), (-2.0, 2.0)),
        _one("ident", "x itself", (1.5, 1.5)),
        _one("stop_gradient", "x itself, through which no derivative flows", (1.5, 1.5)),
        ("pow", _of("pow(x, y)", "x to the power of y; x⁰ is 1", "pow(X, Y)", [8.0, 1.0, nan],
                    X=[2.0, nan, -8.0], Y=[3.0, 0.0, 1 / 3])),
        ("atan2", _of("atan2(y, x)", "the angle of the point (x, y), from −π to π", "atan2(X, Y)", [pi / 4, pi],
                      X=[1.0, 0.0], Y=[1.0, -1.0])),
        ("mod", _of("mod(a, b)", "what a division leaves, with the sign of b, as Python's `%`; by 0: 0 for integers, NaN for floats",
                    "mod(X, Y)", [2, -1, 0], X=[-7, 7, 7], Y=[3, -2, 0])),
        ("fmod", _of("fmod(a, b)", "what a division leaves, with the sign of a, as in C; by 0: 0 for integers, NaN for floats",
                     "fmod(X, Y)", [-1, 1, 0], X=[-7, 7, 7], Y=[3, -2, 0])),
        ("max", _of("max(a, b)", "the larger of two; NaN if either is", "max(X, Y)", [2.0, nan], X=[1.0, nan], Y=[2.0, 0.0])),
        ("min", _of("min(a, b)", "the smaller of two; NaN if either is", "min(X, Y)", [1.0, nan], X=[1.0, nan], Y=[2.0, 0.0])),
        ("clamp", _of("clamp(x, low, high)", "x, or the bound that it is beyond; NaN stays NaN", "clamp(X, 0, 1)", [0.0, 0.5, 1.0],
                      X=[-2.0, 0.5, 7.0])),
        ("where", _of("where(test, a, b)", "`a` where the test holds, else `b`", "where(X > 1, X, 0)", [0.0, 2.0], X=[1.0, 2.0])),
        ("cond", _of("cond(test, a, b)", "another name of where", "cond(X > 1, X, 0)", [0.0, 2.0], X=[1.0, 2.0])),
        ("isnan", _of("isnan(x)", "whether it is NaN", "isnan(X)", [True, False, False], X=[nan, inf, 1.0])),
        ("isinf", _of("isinf(x)", "whether it is ∞ or −∞", "isinf(X)", [False, True, False], X=[nan, -inf, 1.0])),
        ("isfinite", _of("isfinite(x)", "whether it is neither NaN nor infinite", "isfinite(X)", [False, False, True], X=[nan, inf, 1.0])),
        ("add", _of("add(a, b)", "a + b", "add(X, Y)", [11, 22], X=[1, 2], Y=[10, 20])),
        ("sub", _of("sub(a, b)", "a − b", "sub(X, Y)", [-9, -18], X=[1, 2], Y=[10, 20])),
        ("mul", _of("mul(a, b)", "a · b", "mul(X, Y)", [10, 40], X=[1, 2], Y=[10, 20])),
        ("div", _of("div(a, b)", "a / b; of integers truncated towards 0, by 0 it is 0", "div(X, Y)", [-3, 0], X=[-7, 7], Y=[2, 0])),
        ("cmp_eq", _of("cmp_eq(a, b)", "a == b", "cmp_eq(X, Y)", [True, False], X=[1, 2], Y=[1, 1])),
        ("cmp_ne", _of("cmp_ne(a, b)", "a != b; true beside NaN", "cmp_ne(X, Y)", [False, True], X=[1.0, nan], Y=[1.0, nan])),
        ("cmp_lt", _of("cmp_lt(a, b)", "a < b", "cmp_lt(X, Y)", [True, False], X=[1, 2], Y=[2, 2])),
        ("cmp_gt", _of("cmp_gt(a, b)", "a > b", "cmp_gt(X, Y)", [False, True], X=[1, 3], Y=[2, 2])),
        ("cmp_le", _of("cmp_le(a, b)", "a <= b", "cmp_le(X, Y)", [True, True], X=[1, 2], Y=[2, 2])),
        ("cmp_ge", _of("cmp_ge(a, b)", "a >= b", "cmp_ge(X, Y)", [False, True], X=[1, 2], Y=[2, 2])),
        ("bit_and", _of("bit_and(a, b)", "a & b", "bit_and(X, Y)", [8], X=[12], Y=[10])),
        ("bit_or", _of("bit_or(a, b)", "a | b", "bit_or(X, Y)", [14], X=[12], Y=[10])),
        ("bit_xor", _of("bit_xor(a, b)", "a ^ b", "bit_xor(X, Y)", [6], X=[12], Y=[10])),
        ("bit_not", _of("bit_not(x)", "~x", "bit_not(X)", [-13], X=[12])),
        ("bit_left", _of("bit_left(a, n)", "a << n; 0 where n is no place in the word", "bit_left(X, Y)", [24, 0], X=[12, 12], Y=[1, 40])),
        ("bit_right", _of("bit_right(a, n)", "a >> n, which copies the sign", "bit_right(X, Y)", [6, -1], X=[12, -12], Y=[1, 40])),
        ("as_float", _of("as_float(x, bits)", "as a float of 16, 32 or 64 bits", "as_float(X, 32) / 2", [0.5, 1.0], X=[1, 2])),
        ("as_bfloat", _of("as_bfloat(x, 16)", "as a bfloat16: 8 binary digits", "as_float(as_bfloat(X, 16), 32)", [1.0, 256.0], X=[1.001, 257.0])),
        ("as_int", _of("as_int(x, bits)", "as a signed integer of 8, 16, 32 or 64 bits: floats truncate and saturate, NaN is 0",
                       "as_int(X, 8)", [-1, 127, 0], X=[-1.9, 300.0, nan])),
        ("as_uint", _of("as_uint(x, bits)", "as an unsigned integer of 8, 16, 32 or 64 bits: floats truncate and saturate, integers wrap",
                        "as_uint(X, 8)", [0, 255], X=[-1.9, 300.0])),
        ("as_bool", _of("as_bool(x)", "whether it is not 0; NaN is true", "as_bool(X)", [False, True, True], X=[0.0, -2.0, nan])),
        ("bits_as_float", _of("bits_as_float(x)", "the bits of x as the float of its width", "bits_as_float(X)", [1.0], X=[0x3F800000])),
        ("bits_as_bfloat", _of("bits_as_bfloat(x)", "the bits of 16 as a bfloat16", "as_float(bits_as_bfloat(as_uint(X, 16)), 32)", [1.0],
                               X=[0x3F80])),
        ("bits_as_int", _of("bits_as_int(x)", "the bits of x as the signed integer of its width", "bits_as_int(X)", [0x3F800000], X=[1.0])),
        ("bits_as_uint", _of("bits_as_uint(x)", "the bits of x as the unsigned integer of its width", "bits_as_uint(X)", [4294967295], X=[-1])),
        ("index", _of("index(x, axis)", "the coordinate of every element along an axis, int32", "index(X, 1)", [[0, 1, 2]], X=[[5.0, 6.0, 7.0]])),
        ("shape", _of("shape(x)", "the sizes of x, int32", "shape(X)", [1, 3], X=[[5.0, 6.0, 7.0]])),
        ("reshape", _of("reshape(x, sizes…)", "the same elements, in row-major order, in another shape", "reshape(X, 3, 1)",
                        [[5.0], [6.0], [7.0]], X=[[5.0, 6.0, 7.0]])),
        ("broadcast", _of("broadcast(a, b)", "the size that the dimensions a and b have when broadcast: a size, not a tensor",
                          "Z[i : broadcast(N, 1)] = +(X[i]);", [5.0, 6.0], XN=[5.0, 6.0])),
        ("match", _of("match(a, b)", "the dimension a, which must be b", "Z[i : match(N, 2)] = +(X[i]);", [5.0, 6.0], XN=[5.0, 6.0])),
        ("simple_reduce", _of("simple_reduce(x, sizes…)", "sums down to a shape that would broadcast to that of x", "simple_reduce(X, 1, 2)",
                              [[4.0, 6.0]], X=[[1.0, 2.0], [3.0, 4.0]])),
        ("gather", _of("gather(data, indices, axis)", "lines of `data` by number, along axis 0 or another; numbers beyond it mean its first or last",
                       "gather(X, Y, 0)", [30.0, 10.0, 30.0], X=[10.0, 20.0, 30.0], Y=[2, 0, 9])),
        ("scatter", _of("scatter(updates, indices, like, axis)", "values added where the indices say, as many lines as `like` has",
                        "scatter(X, Y, W, 0)", [5.0, 0.0, 2.0], X=[1.0, 2.0, 4.0], Y=[0, 2, 0], W=[0.0, 0.0, 0.0])),
        ("argmax", _of("argmax(x, axis)", "the place of the first largest element, int32; NaN counts as largest", "argmax(X, 0)", 1, X=[1.0, 3.0, 3.0])),
        ("argmin", _of("argmin(x, axis)", "the place of the first smallest element, int32; NaN counts as smallest", "argmin(X, 0)", 0, X=[1.0, 3.0, 1.0])),
        ("cumsum", _of("cumsum(x, axis)", "sums of all elements up to each", "cumsum(X, 0)", [1.0, 3.0, 6.0], X=[1.0, 2.0, 3.0])),
        ("cumprod", _of("cumprod(x, axis)", "products of all elements up to each", "cumprod(X, 0)", [2.0, 4.0, 12.0], X=[2.0, 2.0, 3.0])),
        ("cummax", _of("cummax(x, axis)", "the largest element up to each", "cummax(X, 0)", [1.0, 3.0, 3.0], X=[1.0, 3.0, 2.0])),
        ("cummin", _of("cummin(x, axis)", "the smallest element up to each", "cummin(X, 0)", [3.0, 1.0, 1.0], X=[3.0, 1.0, 2.0])),
        ("sort", _of("sort(x, axis)", "in ascending order, NaN last; descending with a third argument 1", "sort(X, 0)", [1.0, 2.0, 3.0], X=[3.0, 1.0, 2.0])),
        ("argsort", _of("argsort(x, axis)", "the places of the elements in ascending order, int32; equal ones keep their order", "argsort(X, 0)",
                        [1, 2, 0], X=[3.0, 1.0, 2.0])),
        ("top_k", _of("top_k(x, k, axis)", "a tuple: the k largest, largest first, and their places", "Z, I = top_k(X, 2, 0);", [3.0, 2.0], X=[3.0, 1.0, 2.0])),
        ("searchsorted", _of("searchsorted(s, v)", "how many elements of the sorted vector s are smaller than v; smaller or equal with a third argument 1",
                             "searchsorted(X, Y)", [1, 3], X=[1.0, 2.0, 3.0], Y=[2.0, 9.0])),
        ("one_hot", _of("one_hot(i, n)", "true at the place of each index, along a new last axis of size n", "one_hot(X, 3)",
                        [[False, True, False], [True, False, False]], X=[1, 0])),
        ("lowest", _of("lowest(x)", "what a maximum of nothing is: −∞, or the smallest integer of x's type", "lowest(X)", -inf, X=[1.0])),
        ("highest", _of("highest(x)", "what a minimum of nothing is: ∞, or the largest integer of x's type", "highest(X)", 2147483647, X=[1])),
        ("prng_step", _of("prng_step(state, sizes…)", "a draw: uniform numbers from 0 to 1 of these sizes, and the next state", "Z = prng_value(prng_step(X, 3));",
                          None, X=_STATE)),
        ("prng_value", _of("prng_value(draw)", "the numbers of a draw, float32", "Z = prng_value(prng_step(X, 3));", None, X=_STATE)),
        ("prng_state", _of("prng_state(draw)", "the state for the next draw, uint32[3, 2048]", "Z = prng_value(prng_step(prng_state(prng_step(X, 3)), 3));",
                           None, X=_STATE)),
        ("tuple", _of("tuple(a, …)", "several values as one, while binding", "A, Z = tuple(X, X + 1);", [2.0], X=[1.0])),
        ("element", _of("element(t, k)", "member k of a tuple, from 0", "element(tuple(X, X + 1), 1)", [2.0], X=[1.0])),
        ("assert_", _of("assert_…(x)", "an error unless the constant x holds; any name that begins with assert_", "Z = assert_two(N == 2) ? X : 0;",
                        [5.0, 6.0], XN=[5.0, 6.0])),
        ("reverse_grad", _of("reverse_grad(x, k)", "x itself; the derivative is multiplied by −k", "reverse_grad(X, 2)", [1.5], X=[1.5])),
        ("builtin_softmax", _of("builtin_softmax(x, rows, columns)", "exponentials of a matrix, divided by the sum of their row", "builtin_softmax(X, N, M)",
                                [[0.5, 0.5]], XNM=[[1.0, 1.0]])),
        ("builtin_logsoftmax", _of("builtin_logsoftmax(x, rows, columns)", "logarithms of builtin_softmax, with all their digits", "builtin_logsoftmax(X, N, M)",
                                   [[-np.log(2.0), -np.log(2.0)]], XNM=[[1.0, 1.0]])),
        ("builtin_binary_crossentropy", _of("builtin_binary_crossentropy(x, t, scale)", "−t·log(x) − (1 − t)·log(1 − x)",
                                            "builtin_binary_crossentropy(X, Y, 1)", [-np.log(0.75)], X=[0.75], Y=[1.0])),
    )
)  # fmt: skip
"""By name, in the order of the reference."""

OPERATORS: Mapping[str, Entry] = {
    "+": _of("a + b", "the sum; integers wrap", "X + Y", [11, 22], X=[1, 2], Y=[10, 20]),
    "-": _of("a - b", "the difference", "X - Y", [-9, -18], X=[1, 2], Y=[10, 20]),
    "- (prefix)": _of("-x", "the negative", "-X", [-1.0, 2.0], X=[1.0, -2.0]),
    "*": _of("a * b", "the product", "X * Y", [10, 40], X=[1, 2], Y=[10, 20]),
    "/": _of("a / b", "the quotient; of integers truncated towards 0, by 0 it is 0", "X / Y", [-3, 0], X=[-7, 7], Y=[2, 0]),
    "==": _of("a == b", "equal; false beside NaN", "X == Y", [True, False], X=[1, 2], Y=[1, 1]),
    "!=": _of("a != b", "not equal; true beside NaN", "X != Y", [False, True], X=[1, 2], Y=[1, 1]),
    "<": _of("a < b", "less", "X < Y", [True, False], X=[1, 2], Y=[2, 2]),
    ">": _of("a > b", "greater", "X > Y", [False, True], X=[1, 3], Y=[2, 2]),
    "<=": _of("a <= b", "less or equal", "X <= Y", [True, True], X=[1, 2], Y=[2, 2]),
    ">=": _of("a >= b", "greater or equal", "X >= Y", [False, True], X=[1, 2], Y=[2, 2]),
    "&": _of("a & b", "and, bit by bit", "X & Y", [8], X=[12], Y=[10]),
    "|": _of("a | b", "or, bit by bit", "X | Y", [14], X=[12], Y=[10]),
    "^": _of("a ^ b", "exclusive or, bit by bit", "X ^ Y", [6], X=[12], Y=[10]),
    "~": _of("~x", "not, bit by bit", "~X", [-13], X=[12]),
    "<<": _of("a << n", "shifted to the left; 0 where n is no place in the word", "X << Y", [24, 0], X=[12, 12], Y=[1, 40]),
    ">>": _of("a >> n", "shifted to the right, with the sign of a", "X >> Y", [6, -1], X=[12, -12], Y=[1, 40]),
    "?:": _of("test ? a : b", "`a` where the test holds, else `b`", "X > 1 ? X : 0", [0.0, 2.0], X=[1.0, 2.0]),
}  # fmt: skip
"""By symbol, between tensors whose shapes broadcast."""

AGGREGATIONS: Mapping[str, Entry] = {
    "+": _of("Z[…] = +(…)", "the sum of what falls on a cell", "Z[i : N] = +(X[i, j]);", [3.0, 7.0], XNM=[[1.0, 2.0], [3.0, 4.0]]),
    "*": _of("Z[…] = *(…)", "the product", "Z[i : N] = *(X[i, j]);", [2.0, 12.0], XNM=[[1.0, 2.0], [3.0, 4.0]]),
    ">": _of("Z[…] = >(…)", "the largest", "Z[i : N] = >(X[i, j]);", [2.0, 4.0], XNM=[[1.0, 2.0], [3.0, 4.0]]),
    "<": _of("Z[…] = <(…)", "the smallest", "Z[i : N] = <(X[i, j]);", [1.0, 3.0], XNM=[[1.0, 2.0], [3.0, 4.0]]),
    "=": _of("Z[…] = =(…)", "exactly one value; two for one cell are an error", "Z[i : N] = =(X[N - 1 - i]);", [2.0, 1.0], XN=[1.0, 2.0]),
}  # fmt: skip
"""By symbol, over all valid index tuples."""

BODIES: Mapping[str, Entry] = {
    "A[…]": _of("+(A[i, k])", "the elements themselves", "Z[i : N] = +(X[i + k]), k < 2;", [3.0, 5.0, 3.0], XN=[1.0, 2.0, 3.0]),
    "A[…] * B[…]": _of("+(A[i] * B[i])", "products", "Z[] = +(X[i] * Y[i]);", 11.0, XN=[1.0, 2.0], YN=[3.0, 4.0]),
    "A[…] + B[…]": _of("+(A[i] + B[i])", "sums", "Z[] = >(X[i] + Y[i]);", 6.0, XN=[1.0, 2.0], YN=[3.0, 4.0]),
    "A[…] == B[…]": _of("+(A[i] == B[i])", "1 where the two are equal, else 0", "Z[i : N] = =(X[i] == Y[i]);", [True, False], XN=[1.0, 2.0], YN=[1.0, 4.0]),
    "A[…] == B[…] ? C[…]": _of("+(A[i] == B[i] ? C[i])", "C where the two are equal, else 0", "Z[] = +(X[i] == Y[i] ? X[i]);", 1.0,
                               XN=[1.0, 2.0], YN=[1.0, 4.0]),
    "A[B[…]]": _of("=(A[B[i]])", "the element that an integer tensor names", "Z[i : 3] = =(X[Y[i]]);", [30.0, 10.0, 30.0], XN=[10.0, 20.0, 30.0],
                   Y=[2, 0, 9]),
}  # fmt: skip
"""What an aggregation is over."""

BORDERS: Mapping[str, Entry] = {
    name: _of(f"A[{name}(f)]", says, f"Z[i : N + 4] = =(X[{name}(i - 2)]);", gives, XN=[1.0, 2.0, 3.0])
    for name, says, gives in (
        ("zero", "0 beyond the edges", [0.0, 0.0, 1.0, 2.0, 3.0, 0.0, 0.0]),
        ("clamp", "the first and the last element beyond the edges", [1.0, 1.0, 1.0, 2.0, 3.0, 3.0, 3.0]),
        ("reflect", "mirrored at the outermost elements", [3.0, 2.0, 1.0, 2.0, 3.0, 2.0, 1.0]),
        ("symmetric", "mirrored at the edges, outermost elements twice", [2.0, 1.0, 1.0, 2.0, 3.0, 3.0, 2.0]),
        ("wrap", "again from the other end", [2.0, 3.0, 1.0, 2.0, 3.0, 1.0, 2.0]),
    )
}
"""What a tensor holds beyond its edges, by the word around an index formula."""

CLAUSES: Mapping[str, Entry] = {
    "f < n": _of(", f < n", "only index tuples for which 0 <= f < n", "Z[i : N] = +(X[i + k]), k < 2;", [3.0, 5.0, 3.0], XN=[1.0, 2.0, 3.0]),
    "default": _of("default T", "what cells hold that nothing writes: the tensor or number of this name, else 0", "L = -1; Z[i : N] = >(X[i + 2]) default L;", [3.0, -1.0, -1.0],
                   XN=[1.0, 2.0, 3.0]),
    "no_defract": _of("no_defract", "accepted, and without effect", "Z[i : N] = +(X[i]) no_defract;", [1.0, 2.0], XN=[1.0, 2.0]),
}  # fmt: skip
"""What may follow an aggregation."""

GROUPS: Mapping[str, Mapping[str, Entry]] = {
    "Functions": BUILTINS,
    "Operators": OPERATORS,
    "Aggregations": AGGREGATIONS,
    "Bodies of aggregations": BODIES,
    "Borders": BORDERS,
    "Clauses": CLAUSES,
}
