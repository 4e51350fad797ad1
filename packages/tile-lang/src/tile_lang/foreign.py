"""Functions as other languages call them, and what to write in Tile: near spellings would suggest something else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from tile_lang import ast
from tile_lang.values import Const, Tensor, Value

FOREIGN: Mapping[str, str] = {
    "clip": "clamp(X, low, high)", "minimum": "min(A, B)", "maximum": "max(A, B)", "fmin": "min(A, B)", "fmax": "max(A, B)",
    "fabs": "abs(X)", "absolute": "abs(X)", "negative": "-X", "square": "X * X", "reciprocal": "recip(X)",
    "rint": "round_even(X)", "nearbyint": "round_even(X)", "fix": "trunc(X)", "remainder": "mod(A, B)",
    "arcsin": "asin(X)", "arccos": "acos(X)", "arctan": "atan(X)", "arctan2": "atan2(Y, X)",
    "arcsinh": "asinh(X)", "arccosh": "acosh(X)", "arctanh": "atanh(X)", "sgn": "sign(X)",
    "exp2": "pow(2, X)", "log2": "log(X) / log(2)", "log10": "log(X) / log(10)", "rsqrt": "recip(sqrt(X))", "power": "pow(X, Y)",
    "swish": "silu(X)", "bitcast": "bits_as_float(X)", "bitcast_convert_type": "bits_as_float(X)",
    "elu": "where(X > 0, X, expm1(X))", "leaky_relu": "max(X, 0.01 * X)", "relu6": "clamp(X, 0, 6)", "heaviside": "X > 0 ? 1.0 : 0.0",
    "select": "A > 0 ? A : B", "ifelse": "A > 0 ? A : B", "if": "A > 0 ? A : B",
    "float": "as_float(X, 32)", "float32": "as_float(X, 32)", "double": "as_float(X, 64)", "float64": "as_float(X, 64)",
    "half": "as_float(X, 16)", "int": "as_int(X, 32)", "int32": "as_int(X, 32)", "int64": "as_int(X, 64)", "bool": "as_bool(X)",
}  # fmt: skip
"""Expressions, by the name elsewhere."""

_PRODUCT = "C[i, j : M, N] = +(A[i, k] * B[k, j]);"
_TURNED = "T[j, i : M, N] = =(A[i, j]);"
_FLIPPED = "F[i : N] = =(A[N - 1 - i]);"
_JOINED = "P[i : N + M] = =(A[i]); Q[i + N : N + M] = =(B[i]); C = P + Q;"
_CONVOLVED = "O[x, f : N, F] = +(D[x + k - 1, c] * K[k, c, f]), k < 3;"
_REPEATED = "B[i, j : N, M] = =(A[j]);"

STATEMENTS: Mapping[str, str] = {
    **dict.fromkeys(("matmul", "dot", "mm", "bmm", "einsum", "tensordot", "inner"), _PRODUCT),
    **dict.fromkeys(("transpose", "permute", "swapaxes", "moveaxis"), _TURNED),
    **dict.fromkeys(("flip", "reverse", "fliplr", "flipud"), _FLIPPED),
    **dict.fromkeys(("concat", "concatenate", "cat", "hstack", "vstack", "stack", "append"), _JOINED),
    **dict.fromkeys(("conv", "conv1d", "conv2d", "convolve", "convolution"), _CONVOLVED),
    **dict.fromkeys(("broadcast_to", "expand", "repeat", "tile"), _REPEATED),
    "roll": "R[i : N] = =(A[wrap(i - 1)]);",
    "pad": "P[i : N + 2] = =(A[clamp(i - 1)]);",
    "diff": "P[i : N - 1] = =(A[i + 1]); Q[i : N - 1] = =(A[i]); D = P - Q;",
    "norm": "Q = X * X; S[] = +(Q[i]); L = sqrt(S);",
    "take_along_axis": "O[n, k : N, K] = =(T[n, J[n, k]]);",
    "take": "O[k, j : K, M] = =(T[I[k], j]);",
    "index_add": "O[I[k] : N] = +(U[k]);",
}
"""Statements, by the name of the function elsewhere."""

_RESHAPED = "reshape(X, sizes…) does that"
_COUNTED = "index(X, axis) counts along an axis of X"
_NUMBER = "a number takes the shape of what it meets: write it where it is used"
_SIZE = "the names of dimensions are sizes: N of A[N]"
_CAST = "as_float(X, 32), as_int(X, 32), as_uint(X, 8) and as_bool(X) convert"

WORDS: Mapping[str, str] = {
    **dict.fromkeys(("squeeze", "unsqueeze", "expand_dims", "flatten", "view", "ravel"), _RESHAPED),
    **dict.fromkeys(("arange", "range", "iota", "linspace", "indices", "meshgrid"), _COUNTED),
    **dict.fromkeys(("zeros", "ones", "full", "zeros_like", "ones_like", "empty", "constant"), _NUMBER),
    **dict.fromkeys(("len", "size"), _SIZE),
    **dict.fromkeys(("cast", "astype", "convert"), _CAST),
    "softmax": "builtin_softmax(X, N, M) is that of the N rows of X[N, M]",
    "log_softmax": "builtin_logsoftmax(X, N, M) is that of the N rows of X[N, M]",
    "tril": "where(index(A, 0) >= index(A, 1), A, 0) keeps the lower triangle",
    "triu": "where(index(A, 0) <= index(A, 1), A, 0) keeps the upper triangle",
    "eye": "index(A, 0) == index(A, 1) is true on the diagonal",
    "logsumexp": "add the largest to the logarithm of the sum of exp(X - largest)",
    "var": "take the mean of the squared distances from the mean",
    "std": "take the root of the mean of the squared distances from the mean",
}
"""What to do, by the name elsewhere."""

_DTYPES = (
    "bool",
    "int",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float",
    "float32",
    "float64",
)

NUMBERS: Mapping[str, str] = {
    "pi": "write 3.141592653589793", "true": "write 1, or a comparison", "false": "write 0, or a comparison",
    **dict.fromkeys(_DTYPES, _CAST),
}  # fmt: skip
"""What names of constants and dtypes elsewhere are here, whatever their letters."""

AGGREGATED: Mapping[str, str] = {
    "sum": "+", "reduce_sum": "+", "nansum": "+", "total": "+", "prod": "*", "product": "*", "amax": ">", "amin": "<",
    "reduce_max": ">", "reduce_min": "<", "any": ">", "all": "<", "max": ">", "min": "<", "mean": "+", "average": "+",
}  # fmt: skip
"""Aggregations that are functions elsewhere; where `max` and `min` have one argument, they too are meant so."""

USAGE: Mapping[str, str] = {
    "argmax": "argmax(X, axis)", "argmin": "argmin(X, axis)", "cumsum": "cumsum(X, axis)", "cumprod": "cumprod(X, axis)",
    "cummax": "cummax(X, axis)", "cummin": "cummin(X, axis)", "sort": "sort(X, axis), or sort(X, axis, 1) for descending order",
    "argsort": "argsort(X, axis), or argsort(X, axis, 1) for descending order", "top_k": "top_k(X, k, axis)",
    "searchsorted": "searchsorted(sorted, values)", "one_hot": "one_hot(I, count)", "gather": "gather(data, indices, axis)",
    "scatter": "scatter(updates, indices, like, axis)", "clamp": "clamp(X, low, high)", "where": "where(test, A, B)",
    "pow": "pow(X, Y)", "atan2": "atan2(Y, X)", "mod": "mod(A, B)", "fmod": "fmod(A, B)", "index": "index(X, axis)",
    "as_float": "as_float(X, 32)", "as_int": "as_int(X, 32)", "as_uint": "as_uint(X, 8)", "element": "element(T, 0)",
    "builtin_softmax": "builtin_softmax(X, rows, columns)", "builtin_logsoftmax": "builtin_logsoftmax(X, rows, columns)",
}  # fmt: skip
"""How functions of several arguments are called."""

_CLOSE = 0.8
"""Likeness from which a name is a slip of the pen, by difflib's measure."""
_INDEXES, _SIZES = "ijklmn", "NMLKJI"


def unknown(node: ast.Call, args: Sequence[Value], known: Sequence[str]) -> str | None:
    """The hint for a call of a function that does not exist."""
    name = node.function
    if name in AGGREGATED:
        return aggregation(node, args)
    written = FOREIGN.get(name) or STATEMENTS.get(name)
    if written:
        return f"write {written}"
    if name in WORDS:
        return WORDS[name]
    same = [n for n in sorted(known) if n.lower() == name.lower()]
    near = next(iter(same or get_close_matches(name, sorted(known), 1, _CLOSE)), None)
    return f"did you mean {near}?" if near else None


def misused(node: ast.Call, args: Sequence[Value]) -> str | None:
    """The hint for a call with too many or too few arguments."""
    name = node.function
    if name in AGGREGATED and len(args) == 1:
        return aggregation(node, args)
    return f"write {USAGE[name]}" if name in USAGE else None


def aggregation(node: ast.Call, args: Sequence[Value]) -> str:
    """How the aggregation of all elements is written, or of those along the axis that is given."""
    first = node.args[0]
    x, shown = args[0], first.id if isinstance(first, ast.Name) else "A"
    rank = len(x.type.shape) if isinstance(x, Tensor) else 1
    if not 0 < rank <= len(_INDEXES):
        return "write S[] = +(A[i]); for the sum of a vector"
    axis = args[1].value if len(args) > 1 and isinstance(args[1], Const) else None
    kept = [k for k in range(rank) if axis is not None and k != axis % rank]
    target = ", ".join(_INDEXES[k] for k in kept) + (" : " if kept else "") + ", ".join(_SIZES[k] for k in kept)
    text = f"write S[{target}] = {AGGREGATED[node.function]}({shown}[{', '.join(_INDEXES[:rank])}]);"
    mean = node.function in ("mean", "average")
    return f"{text} and divide by the number of elements" if mean else text
