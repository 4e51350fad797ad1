"""Neighbourhoods of a grid: blurs and differences."""

from __future__ import annotations

from classes.work import Work, program


@program
def blur(h: int, w: int, taps: int) -> Work:
    """A separable blur of two passes."""
    text = f"""function (A[H, W], K[T]) -> (O) {{
        P[y, x : H, W] = +(A[y, x + t - {taps // 2}] * K[t]);
        O[y, x : H, W] = +(P[y + t - {taps // 2}, x] * K[t]);
    }}"""
    pad = f"padding=({taps // 2}, 0)"
    torch = f"F.conv2d(F.conv2d(A[None, None], K[None, None, None], padding=(0, {taps // 2})), K[None, None, :, None], {pad})"
    return Work(
        text, {"A": (h, w), "K": (taps,)}, torch=f"{torch}[0, 0]", loop="blur",
        operations=4.0 * taps * h * w, fused=True, length=2 * taps,
    )  # fmt: skip


@program
def laplace(h: int, w: int, dtype: str = "float32") -> Work:
    """Four shifts and the centre in 2-d."""
    text = """function (A[M, N]) -> (O) {
        U[i, j : M, N] = +(A[i - 1, j]); D[i, j : M, N] = +(A[i + 1, j]);
        L[i, j : M, N] = +(A[i, j - 1]); R[i, j : M, N] = +(A[i, j + 1]);
        O = U + D + L + R - 4 * A;
    }"""
    slices = "(lambda p: p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:] - 4 * A)"
    return Work(
        text, {"A": (h, w)}, f"{slices}(np.pad(A, 1))", f"{slices}(F.pad(A, (1, 1, 1, 1)))", loop="laplace",
        operations=5.0 * h * w, length=5, dtype=dtype,
    )  # fmt: skip


@program
def heat(d: int, h: int, w: int) -> Work:
    """Six shifts and the centre in 3-d."""
    shifts = ("x - 1, y, z", "x + 1, y, z", "x, y - 1, z", "x, y + 1, z", "x, y, z - 1", "x, y, z + 1")
    lines = " ".join(f"S{n}[x, y, z : X, Y, Z] = +(A[{s}]);" for n, s in enumerate(shifts))
    text = f"function (A[X, Y, Z]) -> (O) {{ {lines} O = A + 0.1 * (S0 + S1 + S2 + S3 + S4 + S5 - 6 * A); }}"
    inner = "1:-1"
    cuts = [[inner] * a + [end] + [inner] * (2 - a) for a in range(3) for end in (":-2", "2:")]
    total = " + ".join(f"p[{', '.join(c)}]" for c in cuts)
    slices = f"(lambda p: A + 0.1 * ({total} - 6 * A))"
    return Work(
        text, {"A": (d, h, w)}, f"{slices}(np.pad(A, 1))", f"{slices}(F.pad(A, (1,) * 6))", loop="heat",
        operations=9.0 * d * h * w, length=7,
    )  # fmt: skip
