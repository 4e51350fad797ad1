"""Pieces of neural networks, each one program."""

from __future__ import annotations

from dataclasses import replace

from classes.work import Work, program


@program
def attention(b: int, h: int, s: int, d: int, dtype: str = "float32") -> Work:
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
    return Work(text, shapes, torch=torch, operations=work, fused=True, length=s + d, dtype=dtype)


@program
def attention_gradient(b: int, h: int, s: int, d: int, dtype: str = "float32") -> Work:
    """Its gradients, from the operands alone: five products backward, behind the two forward."""
    forward = attention(b, h, s, d, dtype)
    shapes = {**forward.inputs, "G": (b, h, s, d)}
    return replace(forward, inputs=shapes, gradients=("Q", "K", "V"), operations=3.5 * forward.operations)


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
    return Work(
        MLP, shapes, numpy, torch, operations=2.0 * batch * (d * h + h * g + g * c),
        fused=True, length=d + h + g,
    )  # fmt: skip


@program
def mlp_gradient(batch: int, d: int, h: int, g: int, c: int) -> Work:
    """Three layers forward and backward: the gradients of the weights."""
    shapes = {"X": (batch, d), "W1": (d, h), "W2": (h, g), "W3": (g, c), "dZ": (batch, c)}
    torch = "torch.relu(torch.relu(X @ W1) @ W2) @ W3"
    work = 2.0 * batch * (2 * d * h + 3 * h * g + 3 * g * c)
    return Work(
        MLP, shapes, torch=torch, gradients=("W1", "W2", "W3"), operations=work, fused=True, length=batch + d + h + g
    )


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
    return Work(text, shapes, torch=torch, arranged=arranged, operations=work, fused=True, length=2 * wide + 9 * narrow)


@program
def conv_relu(n: int, size: int, channels: int) -> Work:
    """A 3×3 convolution with its ReLU, channels last, weights [3, 3, out, in]."""
    text = """function (D[N, X, Y, CI], K[I, J, CO, CI]) -> (R) {
        O[n, x, y, co : N, X, Y, CO] = +(D[n, x+i-1, y+j-1, ci] * K[i, j, co, ci]);
        R = (O > 0 ? O : 0);
    }"""
    return Work(
        text, {"D": (n, size, size, channels), "K": (3, 3, channels, channels)},
        torch="torch.relu(F.conv2d(D, K, padding=1)).permute(0, 2, 3, 1)",
        arranged={"D": "D.permute(0, 3, 1, 2)", "K": "K.permute(2, 3, 0, 1)"},
        operations=18.0 * n * size**2 * channels**2, fused=True, length=9 * channels,
    )  # fmt: skip


@program
def max_pool(n: int, size: int, channels: int, window: int = 2, stride: int = 2, layout: str = "last") -> Work:
    """The largest of each window of square images, without padding."""
    out = (size - window) // stride + 1
    last = layout == "last"
    places = [f"{stride}*x + i", f"{stride}*y + j"]
    heads, target, source, sizes = (
        ", ".join([first, *space, channel] if last else [first, channel, *space])
        for first, space, channel in (
            ("N", ["H", "W"], "C"), ("n", ["x", "y"], "c"), ("n", places, "c"), ("N", [str(out)] * 2, "C"),
        )
    )  # fmt: skip
    text = f"function (A[{heads}]) -> (O) {{ O[{target} : {sizes}] = >(A[{source}]), i < {window}, j < {window}; }}"
    shape = (n, size, size, channels) if last else (n, channels, size, size)
    back = ".permute(0, 2, 3, 1)" if last else ""
    arranged = {"A": "A.permute(0, 3, 1, 2)" if last else "A"}
    return Work(
        text, {"A": shape}, torch=f"F.max_pool2d(A, {window}, {stride}){back}", arranged=arranged,
        operations=float(n * out * out * channels * window**2),
    )  # fmt: skip
