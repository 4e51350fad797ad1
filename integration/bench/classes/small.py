"""Calls whose cost is the call: a handful of elements."""

from __future__ import annotations

from classes.work import Work, program

OPERATIONS = {
    "add": ("A + B", "A + B", "A + B"),
    "multiply": ("A * B", "A * B", "A * B"),
    "maximum": ("max(A, B)", "np.maximum(A, B)", "torch.maximum(A, B)"),
    "divide": ("A / B", "A / B", "A / B"),
    "exponential": ("exp(A - B)", "np.exp(A - B)", "torch.exp(A - B)"),
    "compare": ("A < B", "A < B", "A < B"),
}


@program
def one_operation(n: int, op: str) -> Work:
    """One elementwise operation."""
    tile, numpy, torch = OPERATIONS[op]
    return Work(f"function (A, B) -> (C) {{ C = {tile}; }}", dict.fromkeys("AB", (n,)), numpy, torch, operations=n)


@program
def small_sum(n: int) -> Work:
    """All elements added up."""
    return Work("function (A[N]) -> (O) { O[] = +(A[i]); }", {"A": (n,)}, "A.sum()", "A.sum()", operations=n, length=n)


@program
def small_matmul(n: int) -> Work:
    """A product of two small square matrices."""
    text = "function (A[M, L], B[L, N]) -> (C) { C[i, j : M, N] = +(A[i, k] * B[k, j]); }"
    return Work(text, dict.fromkeys("AB", (n, n)), "A @ B", "A @ B", operations=2.0 * n**3, length=n)


@program
def chain_of_eight(n: int) -> Work:
    """Eight operations on two vectors."""
    text = """function (A, B) -> (Y) {
        C = A + B; D = C * 0.5; E = max(D, A); F = E - B; G = F * F; H = min(G, 4.0); P = H + A; Y = P * B;
    }"""
    numpy = "(np.minimum((np.maximum((A + B) * 0.5, A) - B) ** 2, 4) + A) * B"
    torch = "(torch.clamp((torch.maximum((A + B) * 0.5, A) - B) ** 2, max=4) + A) * B"
    return Work(text, dict.fromkeys("AB", (n,)), numpy, torch, operations=8.0 * n)
