"""Rows and columns: reductions and normalisations over any axes of any rank."""

from __future__ import annotations

from classes.draw import axes, sizes
from classes.work import Shape, Work, product, program

INDEXES, ONES = "ijklm", "zyxwv"
AGGREGATIONS = {"sum": ("+", "sum"), "max": (">", "amax"), "min": ("<", "amin")}


@program
def reduce(shape: str, over: str, op: str = "sum", dtype: str = "float32") -> Work:
    """A sum, largest or smallest of `shape` (such as 64x1000) over the axes `over` (such as 1 or 02)."""
    given, gone = sizes(shape), axes(over)
    sign, call = AGGREGATIONS[op]
    kept = [a for a in range(len(given)) if a not in gone]
    target = f"O[{', '.join(INDEXES[a] for a in kept)}"
    target += f" : {', '.join(f'N{a}' for a in kept)}]" if kept else "]"
    text = f"function ({_head(given)}) -> (O) {{ {target} = {sign}({_whole(given)}); }}"
    torch = f"A.{call}({gone})"
    numpy = f"A.{call.removeprefix('a')}(axis={gone})"
    return Work(
        text, {"A": given}, numpy, torch, dtype=dtype, operations=float(product(given)), length=_length(given, gone)
    )


@program
def softmax(shape: str, over: str, dtype: str = "float32") -> Work:
    """Over one axis."""
    given, (axis,) = sizes(shape), axes(over)
    text = f"""function ({_head(given)}) -> (Y) {{
        {_kept("H", given, (axis,), ">")}
        E = exp(A - H);
        {_kept("S", given, (axis,), "+", "E")}
        Y = E / S;
    }}"""
    return Work(
        text,
        {"A": given},
        f"(lambda e: e / e.sum({axis}, keepdims=True))(np.exp(A - A.max({axis}, keepdims=True)))",
        f"torch.softmax(A, {axis})",
        dtype=dtype,
        operations=5.0 * product(given),
        length=given[axis],
    )


@program
def log_sum_exp(shape: str, over: str, dtype: str = "float32") -> Work:
    """Over any axes; they stay, with size 1."""
    given, gone = sizes(shape), axes(over)
    text = f"""function ({_head(given)}) -> (Y) {{
        {_kept("H", given, gone, ">")}
        E = exp(A - H);
        {_kept("S", given, gone, "+", "E")}
        Y = log(S) + H;
    }}"""
    numpy = f"(lambda h: np.log(np.exp(A - h).sum({gone}, keepdims=True)) + h)(A.max({gone}, keepdims=True))"
    torch, count = f"torch.logsumexp(A, {gone}, keepdim=True)", product(given)
    return Work(text, {"A": given}, numpy, torch, dtype=dtype, operations=4.0 * count, length=_length(given, gone))


CANCELLING = 1 << 15
"""Length of sums that round as much as what is left of few elements that lie close to their mean."""


@program
def layer_norm(shape: str, over: str, dtype: str = "float32") -> Work:
    """Mean and variance over any axes: the last for layer norm, all but the channel's for batch norm."""
    given, gone = sizes(shape), axes(over)
    count = _length(given, gone)
    text = f"""function ({_head(given)}) -> (Y) {{
        {_kept("S", given, gone, "+")}
        D = A - S / {count}.0;
        Q = D * D;
        {_kept("V", given, gone, "+", "Q")}
        Y = D / sqrt(V / {count}.0 + 0.00001);
    }}"""
    numpy = f"(A - A.mean({gone}, keepdims=True)) / np.sqrt(A.var({gone}, keepdims=True) + 1e-5)"
    last = tuple(range(len(given) - len(gone), len(given)))
    torch = f"F.layer_norm(A, {given[len(given) - len(gone) :]})"
    if gone != last:
        torch = (
            f"(lambda v, m: (A - m) * torch.rsqrt(v + 1e-5))(*torch.var_mean(A, {gone}, correction=0, keepdim=True))"
        )
    return Work(
        text, {"A": given}, numpy, torch, dtype=dtype, operations=7.0 * product(given), length=max(count, CANCELLING)
    )


def _head(shape: Shape) -> str:
    return f"A[{', '.join(f'N{a}' for a in range(len(shape)))}]"


def _whole(shape: Shape, name: str = "A") -> str:
    return f"{name}[{', '.join(INDEXES[: len(shape)])}]"


def _kept(target: str, shape: Shape, gone: Shape, sign: str, source: str = "A") -> str:
    """A reduction that keeps the axes, with size 1."""
    places = [ONES[a] if a in gone else INDEXES[a] for a in range(len(shape))]
    lengths = ["1" if a in gone else f"N{a}" for a in range(len(shape))]
    bounds = ", ".join(f"{ONES[a]} < 1" for a in gone)
    return f"{target}[{', '.join(places)} : {', '.join(lengths)}] = {sign}({_whole(shape, source)}), {bounds};"


def _length(shape: Shape, gone: Shape) -> int:
    return product([shape[a] for a in gone])
