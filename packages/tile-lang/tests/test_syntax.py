"""Parsing: structure, precedence, spans, limits; nothing but a TileError on any text."""

import importlib.util
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tile_ir.diagnostics import Source, TileError, TileLimitError, TileSyntaxError
from tile_ir.ops import Aggregation
from tile_lang import ast
from tile_lang.limits import Limits
from tile_lang.parser import parse
from tile_lang.printer import print_expression

PACKAGE = Path(__file__).parents[1]
CONV = """function (D[N, X, Y, CI], K[I, J, CO, CI], Z[], Any) -> (R, S) {
    O[n, x, y, co : N, X, Y, CO] = +(D[n, x + i - 1, y + 2j, ci] * K[i, j, co, ci]), i < 2, j < N / 2 no_defract default Z;
    [[pid(conv, B)]] R = (O > 0 ? O : 0);  // relu
    S[] = >(R[i, j, k, l] == O[i, j, k, l] ? O[i, j, k, l]);
}
"""


def wrap(statement: str) -> str:
    return f"function (A, B, C, D, E, N) -> (O) {{ {statement} }}"


def expression(text: str) -> ast.Expr:
    statement = parse(wrap(f"O = {text};")).statements[0]
    assert isinstance(statement, ast.Assign)
    return statement.value


def contraction(text: str) -> ast.Contraction:
    statement = parse(wrap(text)).statements[0]
    assert isinstance(statement, ast.Contraction)
    return statement


def grouped(expr: ast.Expr) -> str:
    """The expression with every operation in parentheses."""
    match expr:
        case ast.Binary(op, left, right):
            return f"({grouped(left)}{op}{grouped(right)})"
        case ast.Unary(op, operand):
            return f"({op}{grouped(operand)})"
        case ast.Conditional(test, then, otherwise):
            return f"({grouped(test)}?{grouped(then)}:{grouped(otherwise)})"
        case _:
            return print_expression(expr)


def test_a_whole_function() -> None:
    f = parse(CONV)
    assert [i.name.id for i in f.inputs] == ["D", "K", "Z", "Any"]
    assert [None if i.dims is None else len(i.dims) for i in f.inputs] == [4, 4, 0, None]
    assert [o.id for o in f.outputs] == ["R", "S"]
    conv, relu, largest = f.statements
    assert isinstance(conv, ast.Contraction) and isinstance(relu, ast.Assign) and isinstance(largest, ast.Contraction)
    assert (conv.agg, conv.body.comb, conv.no_defract) == (Aggregation.SUM, "*", True)
    assert conv.default == ast.Name("Z") and len(conv.constraints) == 2
    assert relu.attributes == (ast.Attribute("pid", ("conv", "B")),)
    assert largest.body.then and largest.target.sizes is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A ? B : C ? D : E", "(A?B:(C?D:E))"),
        ("A ? B ? C : D : E", "(A?(B?C:D):E)"),
        ("A | B ^ C & D == E", "(A|(B^(C&(D==E))))"),
        ("A ^ B | C", "((A^B)|C)"),
        ("A == B < C << D + E * N", "(A==(B<(C<<(D+(E*N)))))"),
        ("A - B - C", "((A-B)-C)"),
        ("A / B * C", "((A/B)*C)"),
        ("A >> B << C", "((A>>B)<<C)"),
        ("-A * ~-B", "((-A)*(~(-B)))"),
        ("A--B", "(A-(-B))"),
        ("A < B == C > D", "((A<B)==(C>D))"),
        ("2e1 * A", "(2e1*A)"),
        ("(A < B) < C", "((A<B)<C)"),
        ("Foo(A, $default(B), #default)", "Foo(A, $default(B), #default)"),
    ],
)
def test_precedence_and_grouping(text: str, expected: str) -> None:
    assert grouped(expression(text)) == expected


def test_a_bound_stops_at_sums() -> None:
    c = contraction("O[i : N] = +(A[i + j]), j < 2 + N * 3, 2 * i - j < (N < 3);")
    assert [grouped(k.bound) for k in c.constraints] == ["(2+(N*3))", "(N<3)"]
    assert [grouped(k.formula) for k in c.constraints] == ["j", "((2*i)-j)"]


def test_an_integer_beside_an_index_multiplies() -> None:
    c = contraction("O[2i : N] = +(A[2 * i, 3e, 2 e1]);")
    assert c.target.indexes == (ast.Binary("*", ast.IntLiteral("2"), ast.IndexName("i")),)
    assert [grouped(p) for p in c.body.refs[0].indexes] == ["(2*i)", "(3*e)", "(2*e1)"]


@pytest.mark.parametrize(("text", "sizes"), [("O[]", None), ("O[:]", ()), ("O[ : ]", ())])
def test_scalar_targets(text: str, sizes: tuple[()] | None) -> None:
    assert contraction(f"{text} = +(A[i]);").target.sizes == sizes


@pytest.mark.parametrize(("symbol", "agg"), [(a.symbol, a) for a in Aggregation])
def test_aggregations(symbol: str, agg: Aggregation) -> None:
    assert contraction(f"O[] = {symbol}(A[i]);").agg is agg
    assert contraction(f"O[] ={' ' if symbol == '=' else ''}{symbol}(A[i]);").agg is agg


def test_spans_point_into_the_source() -> None:
    source = Source(CONV, "conv.tile")
    conv, relu, _ = parse(source).statements
    assert isinstance(conv, ast.Contraction) and isinstance(relu, ast.Assign)
    assert conv.body.refs[1].span.text == "K[i, j, co, ci]"
    assert conv.body.refs[0].indexes[2].span.text == "y + 2j"
    assert [k.span.text for k in conv.constraints] == ["i < 2", "j < N / 2"]
    assert relu.span.text == "[[pid(conv, B)]] R = (O > 0 ? O : 0);"
    assert relu.value.span.text == "(O > 0 ? O : 0)"
    assert str(conv.span) == "conv.tile:2:5"


def test_literals_keep_their_text() -> None:
    assert expression("1.50e-3") == ast.FloatLiteral("1.50e-3")
    literal = expression("18446744073709551616")
    assert isinstance(literal, ast.IntLiteral) and literal.value == 2**64


def test_deep_trees_compare_and_hash_without_recursion() -> None:
    text = wrap("O = A" + " + B" * 10_000 + ";")
    first, second = parse(text), parse(text)
    assert first == second and hash(first) == hash(second)
    assert len(ast.postorder(expression("A" + " * B" * 10_000))) == 20_001
    assert first != parse(wrap("O = A" + " + B" * 9_999 + " + C;"))


@pytest.mark.parametrize(
    ("statement", "limit"),
    [
        ("O = " + "(" * 100_000 + "A" + ")" * 100_000 + ";", "max_nesting"),
        ("O = " + "-" * 100_000 + "A;", "max_nesting"),
        ("O = " + "A ? B : " * 50_000 + "C;", "max_nesting"),
        ("O[i : N] = +(A[" + "(" * 1000 + "i" + ")" * 1000 + "]);", "max_nesting"),
        ("O = " + "1" * 900_000 + ";", "max_literal_digits"),
        ("O = 0." + "1" * 900_000 + ";", "max_literal_digits"),
        ("O = " + "1" * 1_000_000 + ";", "max_source_bytes"),
        ("O = " + "A" * 100_000 + ";", "max_name_length"),
        ("O = A;" * 30_000, "max_statements"),
    ],
)
def test_limits_are_diagnosed_quickly(statement: str, limit: str) -> None:
    start = time.process_time()
    with pytest.raises(TileLimitError) as caught:
        parse(wrap(statement))
    assert time.process_time() - start < 5  # of this process, however busy the machine
    (diagnostic,) = caught.value.diagnostics
    assert (
        diagnostic.code == "TILE-E050" and limit in diagnostic.message and f"Limits({limit}=" in (diagnostic.hint or "")
    )


def test_limits_can_be_raised() -> None:
    text = wrap("O = " + "(" * 400 + "A" + ")" * 400 + ";")
    with pytest.raises(TileLimitError):
        parse(text)
    assert parse(text, Limits(max_nesting=1000)) == parse(wrap("O = A;"))


def test_reports_are_cut_at_max_errors() -> None:
    with pytest.raises(TileSyntaxError) as caught:
        parse(wrap("O = A " * 50_000), Limits(max_errors=5))
    assert len(caught.value.diagnostics) == 5


PIECES = st.sampled_from(
    [
        "function",
        "(",
        ")",
        "[",
        "]",
        "[[",
        "]]",
        "{",
        "}",
        "->",
        ",",
        ";",
        ":",
        "?",
        "=",
        "==",
        "!=",
        "<",
        "<=",
        ">",
        ">=",
        "<<",
        ">>",
        "+",
        "-",
        "*",
        "/",
        "&",
        "|",
        "^",
        "~",
        "A",
        "B",
        "N",
        "i",
        "j",
        "exp",
        "max",
        "1",
        "2.5",
        ".5",
        "0x1",
        "default",
        "no_defract",
        "polynomial",
        "&&",
        "%",
        "!",
        "_x",
        "@",
        "//",
        "#",
        "$",
        ".",
        "O[i:N]",
        "=+(",
        "A[i])",
        "\n",
    ]
)


@settings(max_examples=150)
@given(
    st.lists(PIECES, max_size=25),
    st.sampled_from(["", "function (A) -> (O) {", "function (A[N]) -> (O) { O[i : N] = +("]),
)
def test_any_text_parses_or_is_diagnosed(pieces: list[str], start: str) -> None:
    try:
        parse(start + " ".join(pieces))
    except TileError as error:
        assert error.diagnostics and all(d.span for d in error.diagnostics)


@settings(max_examples=100)
@given(st.integers(0, len(CONV) - 1), st.integers(0, 8), st.sampled_from(["", ";", "(", "]", "=", "x", ",", "}"]))
def test_damaged_functions_are_diagnosed(position: int, cut: int, inserted: str) -> None:
    try:
        parse(CONV[:position] + inserted + CONV[position + cut :])
    except TileError as error:
        assert "Traceback" not in str(error)


@pytest.mark.parametrize("operator", ["&&", "||", "**", "%", "!", ":=", "+=", "<<="])
@pytest.mark.parametrize("before", ["O[i : N] = ", "O[i : N] ", "O = A ", "O[i : N", "O[i : N] = +(A[i] ", "O = "])
def test_foreign_operators_anywhere(before: str, operator: str) -> None:
    with pytest.raises(TileSyntaxError) as caught:
        parse(wrap(f"{before}{operator}(A[i]);"))
    assert {d.code for d in caught.value.diagnostics} == {"TILE-E008"}


def test_the_tables_are_those_of_the_grammar() -> None:
    spec = importlib.util.spec_from_file_location("generate_tables", PACKAGE / "tools" / "generate_tables.py")
    assert spec and spec.loader
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    grammar = (PACKAGE / "src" / "tile_lang" / "tile.lark").read_text()
    assert tool.generate(grammar) == (PACKAGE / "src" / "tile_lang" / "_tables.py").read_text()


def test_import_is_lazy_and_parsing_needs_no_lark() -> None:
    code = (
        "import sys, tile_lang; assert 'numpy' not in sys.modules and 'lark' not in sys.modules;"
        "tile_lang.parse('function (A) -> (O) { O = A; }'); assert 'lark' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
