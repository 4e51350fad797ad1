"""Elementwise work and moves: chains, broadcasts, casts, permutations, concatenation, padding, slicing, gather."""

from __future__ import annotations

from classes.draw import axes, sizes
from classes.work import Work, product, program

INDEXES = "ijklm"


@program
def chain(shape: str, dtype: str = "float32") -> Work:
    """Eight cheap operations in a row."""
    text = """function (X) -> (Y) {
        A = X * 1.5; B = A + 0.5; C = max(B, 0.0); D = C * 0.25; E = D - 1.0; F = abs(E); G = min(F, 3.0); Y = G + 2.0;
    }"""
    numpy = "np.minimum(np.abs(np.maximum(X * 1.5 + 0.5, 0) * 0.25 - 1), 3) + 2"
    torch = "torch.clamp(torch.abs(torch.clamp(X * 1.5 + 0.5, min=0) * 0.25 - 1), max=3) + 2"
    given = sizes(shape)
    return Work(text, {"X": given}, numpy, torch, dtype=dtype, operations=8.0 * product(given))


@program
def math_chain(shape: str, dtype: str = "float32") -> Work:
    """Exponentials, logarithms, roots and tangents."""
    text = "function (X) -> (Y) { E = exp(X * 0.5); L = log(E + 1.0); S = sqrt(L); Y = tanh(S - X); }"
    numpy = "np.tanh(np.sqrt(np.log(np.exp(X * 0.5) + 1)) - X)"
    torch = numpy.replace("np.", "torch.")
    given = sizes(shape)
    return Work(text, {"X": given}, numpy, torch, dtype=dtype, operations=60.0 * product(given))


@program
def broadcast(shape: str, over: str, dtype: str = "float32") -> Work:
    """A scale and a shift that are constant along the axes `over`."""
    given, gone = sizes(shape), axes(over)
    small = tuple(1 if a in gone else s for a, s in enumerate(given))
    text = "function (X, S, B) -> (Y) { Y = X * S + B; }"
    inputs, operations = {"X": given, "S": small, "B": small}, 2.0 * product(given)
    return Work(text, inputs, "X * S + B", "X * S + B", dtype=dtype, operations=operations)


@program
def outer(m: int, n: int) -> Work:
    """A column plus a row."""
    text = "function (A, B) -> (C) { C = A + B; }"
    return Work(text, {"A": (m, 1), "B": (1, n)}, "A + B", "A + B", operations=float(m * n))


CASTS = {
    "float32": "as_float(X, 32)",
    "float16": "as_float(X, 16)",
    "float64": "as_float(X, 64)",
    "int32": "as_int(X, 32)",
    "int8": "as_int(X, 8)",
    "uint8": "as_uint(X, 8)",
}


@program
def cast(shape: str, source: str, target: str) -> Work:
    """Every element in another dtype."""
    text = f"function (X) -> (Y) {{ Y = {CASTS[target]}; }}"
    numpy, torch = f"X.astype(np.{target})", f"X.to(torch.{target})"
    return Work(text, {"X": sizes(shape)}, numpy, torch, dtype=source)


@program
def permute(shape: str, order: str, dtype: str = "float32") -> Work:
    """Axis a of the result is axis order[a] of the input."""
    given, moved = sizes(shape), axes(order)
    heads = ", ".join(f"N{a}" for a in range(len(given)))
    places, lengths = ", ".join(INDEXES[a] for a in moved), ", ".join(f"N{a}" for a in moved)
    source = ", ".join(INDEXES[: len(given)])
    text = f"function (A[{heads}]) -> (O) {{ O[{places} : {lengths}] = =(A[{source}]); }}"
    torch = f"A.permute({moved}).clone(memory_format=torch.contiguous_format)"
    return Work(text, {"A": given}, f"A.transpose({moved}).copy()", torch, dtype=dtype)


@program
def concatenate(m: int, a: int, b: int, axis: int) -> Work:
    """Two matrices side by side (axis 1) or one above the other (axis 0)."""
    if axis:
        text = """function (A[M, N], B[M, L]) -> (C) {
            P[i, j : M, N + L] = =(A[i, j]); Q[i, N + j : M, N + L] = =(B[i, j]); C = P + Q;
        }"""
        shapes = {"A": (m, a), "B": (m, b)}
    else:
        text = """function (A[N, M], B[L, M]) -> (C) {
            P[j, i : N + L, M] = =(A[j, i]); Q[N + j, i : N + L, M] = =(B[j, i]); C = P + Q;
        }"""
        shapes = {"A": (a, m), "B": (b, m)}
    return Work(text, shapes, f"np.concatenate((A, B), {axis})", f"torch.cat((A, B), {axis})")


@program
def pad(shape: str, before: int, after: int) -> Work:
    """Zeros around every axis."""
    given = sizes(shape)
    heads = ", ".join(f"N{a}" for a in range(len(given)))
    lengths = ", ".join(f"N{a} + {before + after}" for a in range(len(given)))
    places = ", ".join(f"{i} + {before}" for i in INDEXES[: len(given)])
    source = ", ".join(INDEXES[: len(given)])
    text = f"function (A[{heads}]) -> (O) {{ O[{places} : {lengths}] = =(A[{source}]); }}"
    torch = f"F.pad(A, {(before, after) * len(given)})"
    return Work(text, {"A": given}, f"np.pad(A, {(before, after)})", torch)


@program
def slice_(shape: str, start: int, step: int) -> Work:
    """Every `step`-th element of every axis from `start` on."""
    given = sizes(shape)
    left = [(s - start + step - 1) // step for s in given]
    heads = ", ".join(f"N{a}" for a in range(len(given)))
    places = ", ".join(INDEXES[: len(given)])
    source = ", ".join(f"{step}*{i} + {start}" for i in INDEXES[: len(given)])
    text = f"function (A[{heads}]) -> (O) {{ O[{places} : {', '.join(map(str, left))}] = =(A[{source}]); }}"
    cut = f"A[{', '.join([f'{start}::{step}'] * len(given))}]"
    moved = 4.0 * product(left) * (2 if step == 1 else 1 + min(step, 16))
    torch = f"{cut}.clone(memory_format=torch.contiguous_format)"
    return Work(text, {"A": given}, f"{cut}.copy()", torch, touched=moved)


@program
def gather(rows: int, width: int, count: int) -> Work:
    """`count` rows by number."""
    text = "function (T[N, W], I[K]) -> (O) { O = gather(T, I); }"
    shapes = {"T": (rows, width), "I": (count,)}
    return Work(
        text, shapes, "T[I]", "T[I]", dtypes={"I": "int32"}, highest={"I": rows},
        touched=4.0 * count * (2 * width + 1),
    )  # fmt: skip
