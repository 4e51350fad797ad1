"""What is said of functions before they get arrays: never anything that sizes or dtypes would mend."""

from itertools import islice

import pytest
import tile_lang
from tile_ir.diagnostics import Diagnostic, Source, TileError
from tile_ir.dtype import DType
from tile_ir.program.nodes import TensorType
from tile_lang.checking import Checker, check
from tile_lang.examples import TUTORIAL, Example
from tile_lang.limits import Limits
from tile_lang.mutations import mutants
from tile_lang.parser import parse
from tile_lang.pieces import Reader


def codes(text: str) -> list[str]:
    return [d.code for d in check(parse(text))]


@pytest.mark.parametrize("example", TUTORIAL, ids=lambda e: e.name)
def test_nothing_is_wrong_with_the_tutorial(example: Example) -> None:
    assert check(parse(example.source)) == []


def test_nothing_is_said_of_texts_that_bind_and_all_that_the_binder_says_with_types() -> None:
    bound = 0
    for mutant in islice(mutants(3), 350):
        try:
            function = parse(mutant.text)
        except TileError:
            continue
        types = {i.name.id: t for i in function.inputs if (t := mutant.types.get(i.name.id))}
        refused: list[Diagnostic] = []
        try:
            tile_lang.bind(function, types)
            bound += 1
            assert check(function) == [], mutant.text
        except TileError as error:
            refused = list(error.diagnostics)
        if len(types) == len(function.inputs) and all(d.code != "TILE-E050" for d in refused):
            own = [d for d in check(function, types) if d.span and not d.notes]
            assert {(d.code, d.span) for d in refused if not d.notes} <= {(d.code, d.span) for d in own}, mutant.text
    assert bound > 40


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("function (A[N]) -> (B) { B = A + C; }", ["TILE-E101"]),
        ("function (A) -> (B) { B = expp(A); }", ["TILE-E114"]),
        ("function (A[N]) -> (B) { B[i : N] = +(A[i, j]); }", ["TILE-E108"]),
        ("function (A[N]) -> (B) { B[i : N] = +(A[i]), k < N; C = B; }", []),
        ("function (A[N]) -> (B) { C = A; }", ["TILE-E104"]),
        ("function (A[N], B[M]) -> (C) { C = A + B; }", []),
        ("function (A[N], B[M]) -> (C) { C = N > 10 ? A : Q; }", []),
        ("function (A[N], I[K]) -> (C) { C[k : K] = =(A[I[k]]); }", []),
        ("function (A) -> (C) { C = undefined(A + A) + Q; }", ["TILE-E114", "TILE-E101"]),
        ("function f(X) -> (Y, Y) { Y = tuple(X, X); }\nfunction (A) -> (B) { B = element(element(f(A), 0), 1); }", []),
        ("function f(X[N]) -> (Y) { Y = X + Q; }\nfunction (A) -> (B) { B = f(A); }", ["TILE-E101"]),
    ],
)
def test_what_is_wrong_anyway(text: str, expected: list[str]) -> None:
    assert codes(text) == expected


def test_no_assumed_size_is_shown() -> None:
    (found,) = check(parse("function (A[N, M]) -> (B) { B = cumsum(A, 2); }"))
    assert found.message == "axis 2 is out of range: cumsum is given float[N, M], of rank 2"


def test_types_that_are_given_are_believed() -> None:
    function = parse("function (A[N], B[N]) -> (C) { C[i : N - 9] = +(A[i]); }")
    vector = TensorType(DType.FLOAT32, (3,))
    assert [d.code for d in check(function, {"A": vector, "B": vector})] == ["TILE-E113"]
    assert check(function, {"A": vector}) == []


SHAPES = """function moments(X[N, M]) -> (Mean, Q) { Mean[n : N] = +(X[n, m]); Q = Mean / M > 0; }
function (A[N, M], B[N, 2], I[K], U) -> (R) {
    C[i, j : N, 2 * M + 1] = +(A[i, j]);
    D = reshape(A, N, 1, M) * 2;
    E, F = moments(A);
    G = E + U;
    H = index(A, 0);
    K2 = (K + 1) / 2;
    L = tuple(D, H);
    R = C;
}""".replace("B[N, 2], ", "")
EXPECTED = {
    "A": "[N, M]", "C": "[N, 2 * M + 1]", "D": "[N, 1, M]", "E": "[N]", "F": "bool[N]", "G": None, "H": "int32[N, M]", "U": None,
    "N": "the size N", "L": "([N, 1, M], int32[N, M])", "K2": "the size ?", "Z": None,
}  # fmt: skip


def test_shapes_are_formulas() -> None:
    known = Checker().check(parse(SHAPES), {}).known
    assert {name: known[None].describe(name) for name in EXPECTED} == EXPECTED
    assert known["moments"].describe("Mean") == "[N]"


def test_only_what_depends_on_a_change_is_bound_again(monkeypatch: pytest.MonkeyPatch) -> None:
    import tile_lang.checking as checking

    seen: list[str] = []
    bind = checking.bind_statement
    monkeypatch.setattr(
        checking, "bind_statement", lambda scope, node: (seen.append(node.target.id), bind(scope, node))
    )
    reader, checker = Reader(), Checker()
    text = "function (A[N]) -> (D) { B = A * 2; C = A + 1; E = B + 1; D = C + E; }"
    for number, expected in ((1, {"B", "C", "D", "E"}), (2, {"C"}), (2, set())):
        seen.clear()
        found = reader.read(Source(text.replace("A + 1", f"A + {number}"))).function
        assert found is not None
        assert checker.check(found, {}).diagnostics == () and set(seen) == expected


CALLS = """function one(X[N]) -> (Y, I) { Y = X + 1; I = index(X, 0); }
function two(X[N]) -> (Y) { W, I = one(X); Y = W * I; }
function three(X[N], K) -> (Z) { Z = two(X) + two(X) * K; }
function (A[N], B[M], U) -> (D) { C = three(A, 2); E = three(B, 0.5); D = as_int(E, 32); F = U + two(B); }"""
EDITS = (
    ("X + 1", "X > 1"), ("X > 1", "X + Q"), ("X + Q", "X + 1"), ("(X) * K", "(X) * U"), ("(X) * U", "(X, X) * K"), ("(X, X) * K", "(X) * K"),
    ("-> (Y, I) {", "-> (I, Y) {"), ("two(X) +", "three(X, K) +"), ("three(X, K) +", "two(X) +"), ("function one", "function uno"),
    ("= one(", "= uno("), ("X + 1;", "reshape(X, N, 1);"), ("X[N]) -> (I", "X[N, M]) -> (I"), ("X[N, M]) -> (I", "X) -> (I"),
)  # fmt: skip


def test_calls_that_are_remembered_say_what_they_said() -> None:
    reader, checker, text = Reader(), Checker(), CALLS
    for old, new in (("N", "N"), *EDITS):
        assert old in text
        text = text.replace(old, new)
        function = reader.read(Source(text)).function
        assert function is not None
        found, fresh = checker.check(function, {}), Checker().check(function, {})
        assert found.diagnostics == fresh.diagnostics, text
        for name, known in fresh.known.items():
            told = {value: known.describe(value) for value in known.scopes[0].values}
            assert told == {value: found.known[name].describe(value) for value in told}, text


def test_only_calls_of_what_has_changed_are_bound_again(monkeypatch: pytest.MonkeyPatch) -> None:
    import tile_lang.local as local

    bound: list[str] = []
    bind = local.bind_statement
    monkeypatch.setattr(local, "bind_statement", lambda scope, node: (bound.append(scope.calls[-1]), bind(scope, node)))
    reader, checker = Reader(), Checker()
    for new, expected in (("+", "one three two"), ("-", "three"), ("-", "")):
        bound.clear()
        function = reader.read(Source(CALLS.replace("+ two(X)", f"{new} two(X)"))).function
        assert function is not None
        assert checker.check(function, {}).diagnostics == () and " ".join(sorted({*bound})) == expected


def test_what_is_remembered_counts_as_calls() -> None:
    text = "function a(X[N]) -> (Y) { Y = X + 1; }\nfunction b(X[N]) -> (Y) { Y = a(X) + a(X); }\nfunction (A[N]) -> (C) { C = b(A) + b(A); }"
    function, vector = parse(text), {"A": TensorType(DType.FLOAT32, (3,))}
    for limits, expected in (
        (Limits(max_calls=6, max_depth=2), []),
        (Limits(max_calls=5), ["TILE-E050"]),
        (Limits(max_depth=1), ["TILE-E050"]),
    ):
        checker = Checker(limits)
        for _ in range(3):
            assert [d.code for d in checker.check(function, vector).diagnostics] == expected
