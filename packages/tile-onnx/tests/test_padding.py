"""Programs of two sizes side by side: what padding keeps, what it needs, and what is refused.

Texts are functions of a size; they are evaluated for a size, and for a larger one on inputs that hold nonsense behind
the end (zeros, as `generalised` asks, where an input is summed).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import tile_lang
from hypothesis import given
from hypothesis import strategies as st
from tile_ir.contents import Contents
from tile_ir.dtype import DType, from_numpy
from tile_ir.program.nodes import ConstantTensor, Elementwise, Loop, Param, Program, TensorType
from tile_lang.evaluate import evaluate
from tile_onnx.padding import Needs, OtherForm, Refused, compared, generalised, numbers, values

Arrays = Mapping[str, np.ndarray[Any, Any]]
Text = Callable[[int], str]
LARGE = 8


def program(
    text: Text, size: int, shapes: Mapping[str, Any], constants: Callable[[int], Arrays] | None = None
) -> Program:
    """The function of a size, with constants in the place of some of its inputs."""
    given = constants(size) if constants is not None else {}
    sized = {n: tuple(size if d == "n" else d for d in s) for n, s in shapes.items()}
    types = {n: TensorType(from_numpy(np.dtype(np.float64)), s) for n, s in sized.items()}
    types |= {n: TensorType(from_numpy(a.dtype), a.shape) for n, a in given.items()}
    made = tile_lang.bind(tile_lang.parse(text(size)), types)
    ops = tuple(ConstantTensor(n, types[n], Contents(a.tobytes())) for n, a in given.items())
    return Program(made.name, tuple(p for p in made.inputs if p.name not in given), (*ops, *made.ops), made.outputs)


def marks(large: Program, needs: Needs) -> dict[tuple[int, int], int]:
    """Each mask's limit on its own."""
    place = {name: k for k, name in enumerate(values(large))}
    keys = sorted({(place[m.tensor], m.axis) for m in needs.masks})
    return {key: k for k, key in enumerate(keys)}


def agrees(text: Text, size: int, shapes: Mapping[str, Any], constants: Any = None) -> Needs:
    """Checks that the padded program gives what the one of the size gives; what it needs."""
    small, large = (program(text, s, shapes, constants) for s in (size, LARGE))
    needs = compared(small, large)
    general = generalised(large, needs, marks(large, needs))
    random = np.random.default_rng(size)
    feeds = {p.name: random.integers(-4, 5, p.type.shape).astype(np.float64) for p in small.inputs}
    padded = {p.name: np.zeros(p.type.shape) for p in large.inputs}
    for name, array in feeds.items():
        padded[name][tuple(map(slice, array.shape))] = array
    further = zip((p.name for p in general.program.inputs[len(padded) :]), numbers(general, small), strict=True)
    found, wanted = evaluate(general.program, padded | dict(further)), evaluate(small, feeds)
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name][tuple(map(slice, array.shape))], array)
    return needs


ROWS = {"X": ("n", 3)}
IMAGE = {"X": (2, "n")}

KEPT: dict[str, tuple[Text, Mapping[str, Any]]] = {
    "elementwise": (lambda n: "function (X, B) -> (Y) { Y = relu(X * 2 + B); }", ROWS | {"B": (3,)}),
    "product": (lambda n: "function (X[N, K], W[K, M]) -> (Y) { Y[n, m : N, M] = +(X[n, k] * W[k, m]); }", ROWS | {"W": (3, 4)}),
    "row sums": (lambda n: "function (X[N, K]) -> (Y) { S[n, 0 : N, 1] = +(X[n, k]); Y = X / (S + 100); }", ROWS),
    "merged": (lambda n: f"function (X[N, K]) -> (Y) {{ Y = reshape(X, {n}, 1, 3) + 1; Z = reshape(Y, {3 * n}); Y = reshape(Z, {3 * n}, 1); }}".replace("Y = reshape(Z", "R = reshape(Z").replace("-> (Y)", "-> (Y, R)"), ROWS),
    "transposed": (lambda n: "function (X[N, K]) -> (Y) { Y[k, n : K, N] = =(X[n, k]); }", ROWS),
    "gathered": (lambda n: "function (X[N, K], I) -> (Y) { J = as_int(I, 32); Y = gather(X, J, 1); }", ROWS | {"I": (2,)}),
    "every other": (lambda n: f"function (X[A, W]) -> (Y) {{ Y[a, x : A, {(n - 1) // 2 + 1}] = =(X[a, 2 * x]); }}", IMAGE),
    "sorted rows": (lambda n: "function (X[N, K]) -> (Y) { Y = sort(X, 1); }", ROWS),
    "coordinates": (lambda n: "function (X[N, K]) -> (Y) { Y = X + index(X, 0); }", ROWS),
}  # fmt: skip
"""Nothing is needed."""

MASKED: dict[str, tuple[Text, Mapping[str, Any]]] = {
    "sum": (lambda n: "function (X[N, K]) -> (Y) { R = X + 1; Y[k : K] = +(R[n, k]); }", ROWS),
    "mean": (lambda n: f"function (X[N, K]) -> (Y) {{ R = X + 1; S[k : K] = +(R[n, k]); Y = S / {n}; }}", ROWS),
    "greatest": (lambda n: "function (X[N, K]) -> (Y) { Y[k : K] = >(X[n, k]); }", ROWS),
    "least": (lambda n: "function (X[N, K]) -> (Y) { R = X - 9; Y[k : K] = <(R[n, k]); }", ROWS),
    "multiplied": (lambda n: "function (X[N, K]) -> (Y) { Y[k : K] = *(X[n, k]); }", ROWS),
    "softmax": (lambda n: "function (X[N, K]) -> (Y) { M[0, k : 1, K] = >(X[n, k]); E = exp(X - M); S[0, k : 1, K] = +(E[n, k]); Y = E / S; Z[k : K] = +(Y[n, k] * X[n, k]); }".replace("-> (Y)", "-> (Y, Z)").replace("exp(X - M)", "X - M + 50"), ROWS),
    "attention": (lambda n: "function (Q[T, C], V[T, C]) -> (Y) { P[q, t : T, T] = +(Q[q, c] * V[t, c]); R = P + 1; Y[q, c : T, C] = +(R[q, t] * V[t, c]); }", {"Q": ("n", 3), "V": ("n", 3)}),
    "windows": (lambda n: f"function (X[A, W]) -> (Y) {{ M[a, x : A, {n}] = >(X[a, x + i - 1]), i < 3; Y[a, x : A, {n}] = +(M[a, x + i - 1]), i < 3; }}", IMAGE),
}  # fmt: skip
"""Neutral elements behind the end, numbers as inputs."""

REFUSED: dict[str, tuple[Text, Mapping[str, Any]]] = {
    "reversed": (lambda n: f"function (X[A, W]) -> (Y) {{ Y[a, x : A, W] = =(X[a, {n - 1} - x]); }}", IMAGE),
    "the last one": (lambda n: f"function (X[A, W]) -> (Y) {{ Y[a : A] = =(X[a, {n - 1}]); }}", IMAGE),
    "joined": (lambda n: f"function (X[A, W]) -> (Y) {{ F[a, x : A, {2 * n}] = =(X[a, x]); Y[a, x + {n} : A, {2 * n}] = =(X[a, x]) default F; }}", IMAGE),
    "merged in the middle": (lambda n: f"function (X[A, W]) -> (Y) {{ Y = reshape(X, {2 * n}); }}", IMAGE),
    "sorted": (lambda n: "function (X[N, K]) -> (Y) { Y = sort(X, 0); }", ROWS),
    "looked up": (lambda n: "function (X[N, K], I) -> (Y) { J = as_int(I, 32); Y = gather(X, J, 0); }", ROWS | {"I": (2,)}),
    "weights that may be infinite": (lambda n: f"function (X[A, W], V) -> (Y) {{ Y[a, x : A, {n}] = +(X[a, x + i - 1] * V[i]); }}", IMAGE | {"V": (3,)}),
    "not zero": (lambda n: "function (X[N, K]) -> (Y) { Y[k : K] = +(exp(X[n, k])); }".replace("+(exp(X[n, k]))", "+(X[n, k] == X[n, k])"), ROWS),
}  # fmt: skip


@pytest.mark.parametrize("size", [1, 2, 5, 7, LARGE])
@pytest.mark.parametrize("name", KEPT)
def test_kept(name: str, size: int) -> None:
    assert not agrees(KEPT[name][0], size, KEPT[name][1])


@pytest.mark.parametrize("size", [2, 5, 7])
@pytest.mark.parametrize("name", MASKED)
def test_masked(name: str, size: int) -> None:
    assert agrees(MASKED[name][0], size, MASKED[name][1])


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    text, shapes = REFUSED[name]
    with pytest.raises(Refused):
        compared(program(text, 5, shapes), program(text, LARGE, shapes))
    assert not compared(program(text, LARGE, shapes), program(text, LARGE, shapes))


def test_constants() -> None:
    """Those that begin alike stay; others become inputs; a convolution's are seen to be finite."""
    text: Text = lambda n: f"function (X[A, W], V, P) -> (Y) {{ S = V * 2; Y[a, x : A, {n}] = +(X[a, x + i - 1] * S[i]); Z = X + P; }}".replace("-> (Y)", "-> (Y, Z)")  # fmt: skip # noqa: E731
    weights = np.array([1.0, 2.0, 3.0])
    assert not agrees(text, 5, IMAGE, lambda n: {"V": weights, "P": np.arange(float(n))}).constants
    assert agrees(text, 5, IMAGE, lambda n: {"V": weights, "P": np.arange(float(n)) / n}).constants == {1}
    with pytest.raises(Refused, match="not known to be zero"):
        agrees(text, 5, IMAGE, lambda n: {"V": weights * [1, 1, np.inf], "P": np.arange(float(n))})


def test_a_window_that_sees_nothing_is_refused() -> None:
    """Its cell is 0 in the program of the size, and the neutral element in the other one."""
    text: Text = lambda n: f"function (X[A, W]) -> (Y) {{ Y[a, x : A, {n}] = >(X[a, x + i - 3]), i < 2; }}"  # noqa: E731
    with pytest.raises(Refused, match="nothing neutral"):
        compared(program(lambda n: text(LARGE + 2), 5, IMAGE), program(lambda n: text(LARGE + 2), LARGE, IMAGE))


def test_other_forms() -> None:
    text: Text = lambda n: "function (X) -> (Y) { Y = X; }" if n == 1 else "function (X) -> (Y) { Y = X + 1; }"  # noqa: E731
    with pytest.raises(OtherForm):
        compared(program(text, 1, ROWS), program(text, LARGE, ROWS))


@given(kernel=st.integers(1, 5), stride=st.integers(1, 3), left=st.integers(0, 2), right=st.integers(0, 2),
       dilation=st.integers(1, 2), size=st.integers(1, LARGE), aggregation=st.sampled_from("+>"))  # fmt: skip
def test_windows(kernel: int, stride: int, left: int, right: int, dilation: int, size: int, aggregation: str) -> None:
    """Two windowed steps, one after the other, are as for the size itself, or refused."""

    def outputs(n: int) -> int:
        return (n + left + right - dilation * (kernel - 1) - 1) // stride + 1

    def text(n: int) -> str:
        place = f"{stride}*x + {dilation}*i - {left}"
        one = f"R[a, x : A, {outputs(n)}] = {aggregation}(X[a, {place}]), i < {kernel};"
        two = f"Y[a, x : A, {outputs(outputs(n))}] = +(T[a, {place}]), i < {kernel};"
        return f"function (X[A, W]) -> (Y) {{ {one} T = R + 1; {two} }}"

    if min(outputs(size), outputs(max(outputs(size), 0))) < 1:
        return
    try:
        agrees(text, size, IMAGE)
    except Refused:
        assert aggregation == ">"


def looped(size: int, reverse: bool = False, last: bool = False, width: int = 3) -> Program:
    """Running sums of the rows of X, by a loop: all of them, and the last one on request."""
    row, rows = (TensorType(DType.FLOAT64, s) for s in ((width,), (size, width)))
    body = Program(
        "body",
        (Param("S", row), Param("R", row)),
        (Elementwise("T", row, "add", ("S", "R")),),
        (("T", "T"), ("U", "T")),
    )
    zero = ConstantTensor("Z", row, Contents(bytes(8 * width)))
    loop = Loop(("E", "Y"), (row, rows), body, size, ("Z",), ("X",), (), reverse)
    outputs = (("Y", "Y"), ("E", "E")) if last else (("Y", "Y"),)
    return Program("sums", (Param("X", rows),), (zero, loop), outputs)


def test_loops_over_the_padded_axis() -> None:
    assert not compared(looped(5), looped(LARGE))
    assert not compared(looped(5, last=True), looped(5, last=True))
    assert not compared(looped(5, reverse=True, last=True, width=2), looped(5, reverse=True, last=True, width=4))
    with pytest.raises(Refused, match="output 'E' is what the last round"):
        compared(looped(5, last=True), looped(LARGE, last=True))
    with pytest.raises(Refused, match="begins at the end"):
        compared(looped(5, reverse=True), looped(LARGE, reverse=True))
