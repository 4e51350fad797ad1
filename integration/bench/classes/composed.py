"""Programs of several steps, and contractions with other bodies and aggregations."""

from __future__ import annotations

from classes.work import Work, program


@program
def attention(b: int, h: int, s: int, d: int) -> Work:
    """Softmax(Q Kᵀ / √d) V in one program."""
    text = f"""function (Q[B, H, S, D], K[B, H, T, D], V[B, H, T, D]) -> (O) {{
        P[b, h, s, t : B, H, S, T] = +(Q[b, h, s, d] * K[b, h, t, d]);
        X = P * {d**-0.5:.9f};
        M[b, h, s, z : B, H, S, 1] = >(X[b, h, s, t]), z < 1;
        E = exp(X - M);
        Z[b, h, s, z : B, H, S, 1] = +(E[b, h, s, t]), z < 1;
        Y = E / Z;
        O[b, h, s, d : B, H, S, D] = +(Y[b, h, s, t] * V[b, h, t, d]);
    }}"""
    shapes = dict.fromkeys("QKV", (b, h, s, d))
    torch, work = "F.scaled_dot_product_attention(Q, K, V)", b * h * s * s * (4.0 * d + 5)
    return Work(text, shapes, torch=torch, operations=work, length=s + d)


MLP = """function (X[B, D], W1[D, H], W2[H, G], W3[G, C]) -> (Z) {
    P[b, h : B, H] = +(X[b, d] * W1[d, h]);
    Q = relu(P);
    R[b, g : B, G] = +(Q[b, h] * W2[h, g]);
    S = relu(R);
    Z[b, c : B, C] = +(S[b, g] * W3[g, c]);
}"""


@program
def mlp(batch: int, d: int, h: int, g: int, c: int) -> Work:
    """Three layers, forward."""
    shapes = {"X": (batch, d), "W1": (d, h), "W2": (h, g), "W3": (g, c)}
    numpy = "np.maximum(np.maximum(X @ W1, 0) @ W2, 0) @ W3"
    torch = "torch.relu(torch.relu(X @ W1) @ W2) @ W3"
    return Work(MLP, shapes, numpy, torch, operations=2.0 * batch * (d * h + h * g + g * c), length=d + h + g)


@program
def mlp_gradient(batch: int, d: int, h: int, g: int, c: int) -> Work:
    """Three layers forward and backward: the gradients of the weights."""
    shapes = {"X": (batch, d), "W1": (d, h), "W2": (h, g), "W3": (g, c), "dZ": (batch, c)}
    torch = "torch.relu(torch.relu(X @ W1) @ W2) @ W3"
    work = 2.0 * batch * (2 * d * h + 3 * h * g + 3 * g * c)
    return Work(MLP, shapes, torch=torch, gradients=("W1", "W2", "W3"), operations=work, length=batch + d + h + g)


@program
def bottleneck(n: int, size: int, wide: int, narrow: int) -> Work:
    """A residual block: 1×1, 3×3 and 1×1 convolutions with ReLUs, channels last."""
    text = """function (X[N, H, W, C], K1[C, M], K2[I, J, M, M], K3[M, C]) -> (Y) {
        A[n, x, y, m : N, H, W, M] = +(X[n, x, y, c] * K1[c, m]);
        B = relu(A);
        D[n, x, y, o : N, H, W, M] = +(B[n, x + i - 1, y + j - 1, m] * K2[i, j, m, o]);
        E = relu(D);
        F[n, x, y, c : N, H, W, C] = +(E[n, x, y, m] * K3[m, c]);
        Y = relu(F + X);
    }"""
    shapes = {"X": (n, size, size, wide), "K1": (wide, narrow), "K2": (3, 3, narrow, narrow), "K3": (narrow, wide)}
    inner = "torch.relu(F.conv2d(torch.relu(F.conv2d(X, K1)), K2, padding=1))"
    arranged = {
        "X": "X.permute(0, 3, 1, 2)", "K1": "K1.T[:, :, None, None]", "K2": "K2.permute(3, 2, 0, 1)",
        "K3": "K3.T[:, :, None, None]",
    }  # fmt: skip
    torch = f"torch.relu(F.conv2d({inner}, K3) + X).permute(0, 2, 3, 1)"
    work = 2.0 * n * size * size * narrow * (2 * wide + 9 * narrow)
    return Work(text, shapes, torch=torch, arranged=arranged, operations=work, length=2 * wide + 9 * narrow)


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
        operations=4.0 * taps * h * w, length=2 * taps,
    )  # fmt: skip


@program
def laplace(h: int, w: int) -> Work:
    """Four shifts and the centre in 2-d."""
    text = """function (A[M, N]) -> (O) {
        U[i, j : M, N] = +(A[i - 1, j]); D[i, j : M, N] = +(A[i + 1, j]);
        L[i, j : M, N] = +(A[i, j - 1]); R[i, j : M, N] = +(A[i, j + 1]);
        O = U + D + L + R - 4 * A;
    }"""
    slices = "(lambda p: p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:] - 4 * A)"
    return Work(
        text, {"A": (h, w)}, f"{slices}(np.pad(A, 1))", f"{slices}(F.pad(A, (1, 1, 1, 1)))", "laplace",
        operations=5.0 * h * w, length=5,
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
        text, {"A": (d, h, w)}, f"{slices}(np.pad(A, 1))", f"{slices}(F.pad(A, (1,) * 6))", "heat",
        operations=9.0 * d * h * w, length=7,
    )  # fmt: skip


@program
def distances(m: int, n: int, k: int, norm: int = 2) -> Work:
    """Sums over k of |a - b| or (a - b)², for every pair of rows."""
    body = "D * D" if norm == 2 else "abs(D)"
    text = f"""function (A[M, L], B[N, L]) -> (O) {{
        D = reshape(A, M, 1, L) - reshape(B, 1, N, L);
        Q = {body};
        O[i, j : M, N] = +(Q[i, j, k]);
    }}"""
    torch = "torch.cdist(A, B, p=1)" if norm == 1 else "((A[:, None] - B[None]) ** 2).sum(-1)"
    return Work(
        text, {"A": (m, k), "B": (n, k)}, torch=torch, loop=f"distances{norm}", operations=3.0 * m * n * k, length=k
    )


@program
def max_plus(m: int, k: int, n: int) -> Work:
    """A product of matrices in the max-plus semiring."""
    text = "function (A[M, L], B[L, N]) -> (C) { C[i, j : M, N] = >(A[i, k] + B[k, j]); }"
    torch = "(A[:, :, None] + B[None]).amax(1)"
    return Work(text, {"A": (m, k), "B": (k, n)}, torch=torch, loop="max_plus", operations=2.0 * m * k * n)


@program
def cumulative_sum(n: int) -> Work:
    """Of a vector, as the tutorial writes it."""
    text = "function (A[N]) -> (O) { O[i : N] = +(A[k]), i - k < N; }"
    return Work(text, {"A": (n,)}, "np.cumsum(A)", "torch.cumsum(A, 0)", operations=float(n), length=n)


@program
def cumulative_rows(m: int, n: int, axis: int = 1) -> Work:
    """Of every row (axis 1) or column (axis 0) of a matrix."""
    text = (
        "function (A[M, N]) -> (O) { O[i, j : M, N] = +(A[i, k]), j - k < N; }"
        if axis
        else "function (A[M, N]) -> (O) { O[i, j : M, N] = +(A[k, j]), i - k < M; }"
    )
    numpy, torch = f"np.cumsum(A, {axis})", f"torch.cumsum(A, {axis})"
    return Work(text, {"A": (m, n)}, numpy, torch, operations=float(m * n), length=(m, n)[axis])
