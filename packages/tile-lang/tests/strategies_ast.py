"""Hypothesis strategies of syntax trees."""

from hypothesis import strategies as st
from tile_ir.ops import Aggregation
from tile_lang import ast

UPPER = st.sampled_from(["A", "B", "Conv_1", "X'", "N", "default", "lower", "X_T0"])
LOWER = st.sampled_from(["i", "j", "x1", "k'", "Upper", "no_defract", "function", "inf"])
WORDS = st.sampled_from(["exp", "max", "Foo", "default", "as_float"])
NAMES = st.builds(ast.Name, UPPER)
INTS = st.builds(ast.IntLiteral, st.sampled_from(["0", "1", "02", "1000000000000000000000"]))
FLOATS = st.builds(ast.FloatLiteral, st.sampled_from(["0.5", "1e5", "2.50e-3", "1.e2", "3E+1", "inf", "nan"]))


def _expressions(inner: st.SearchStrategy[ast.Expr]) -> st.SearchStrategy[ast.Expr]:
    operators = ["+", "-", "*", "/", "==", "!=", "<", ">", "<=", ">=", "<<", ">>", "&", "|", "^"]
    return st.one_of(
        st.builds(ast.Binary, st.sampled_from(operators), inner, inner),
        st.builds(ast.Unary, st.sampled_from("-~"), inner),
        st.builds(ast.Conditional, inner, inner, inner),
        st.builds(ast.Call, WORDS, st.lists(inner, min_size=1, max_size=3).map(tuple)),
    )


def _formulas(inner: st.SearchStrategy[ast.Poly]) -> st.SearchStrategy[ast.Poly]:
    return st.one_of(
        st.builds(ast.Binary, st.sampled_from("+-*/"), inner, inner),
        st.builds(ast.Unary, st.just("-"), inner),
    )


EXPRESSIONS = st.recursive(st.one_of(NAMES, INTS, FLOATS), _expressions, max_leaves=8)
FORMULAS = st.recursive(st.one_of(NAMES, INTS, st.builds(ast.IndexName, LOWER)), _formulas, max_leaves=5)
FORMULA_LISTS = st.lists(FORMULAS, max_size=3).map(tuple)
BORDERS = st.builds(ast.Border, st.sampled_from(["clamp", "reflect", "symmetric", "wrap", "zero"]), FORMULAS)
REFS = st.recursive(
    st.builds(ast.Ref, NAMES, FORMULA_LISTS),
    lambda inner: st.builds(ast.Ref, NAMES, st.lists(FORMULAS | BORDERS | inner, max_size=3).map(tuple)),
    max_leaves=3,
)
SUBSCRIPTS = st.lists(FORMULAS | REFS | BORDERS, max_size=3).map(tuple)
ATTRIBUTES = st.lists(st.builds(ast.Attribute, LOWER, st.lists(WORDS, max_size=2).map(tuple)), max_size=2).map(tuple)


@st.composite
def targets(draw: st.DrawFn) -> ast.Target:
    indexes = draw(SUBSCRIPTS)
    sizes = st.lists(EXPRESSIONS, min_size=1, max_size=2).map(tuple) if indexes else st.just(())
    return ast.Target(draw(NAMES), indexes, draw(st.none() | sizes))


@st.composite
def bodies(draw: st.DrawFn) -> ast.Body:
    count = draw(st.integers(1, 4))
    comb = None if count == 1 else draw(st.sampled_from(["+", "*", "=="] if count == 2 else ["+", "*"]))
    return ast.Body(
        tuple(draw(REFS) for _ in range(count)), comb, draw(REFS) if count == 2 and draw(st.booleans()) else None
    )


CONTRACTIONS = st.builds(
    ast.Contraction,
    targets(),
    st.sampled_from(Aggregation),
    bodies(),
    st.lists(st.builds(ast.Constraint, FORMULAS, EXPRESSIONS), max_size=2).map(tuple),
    st.booleans(),
    st.none() | NAMES,
    ATTRIBUTES,
)
UNPACKED = st.builds(ast.Unpack, st.lists(NAMES, min_size=2, max_size=3).map(tuple), EXPRESSIONS, ATTRIBUTES)
STATEMENTS = st.one_of(st.builds(ast.Assign, NAMES, EXPRESSIONS, ATTRIBUTES), UNPACKED, CONTRACTIONS)
INPUTS = st.builds(ast.Input, NAMES, st.none() | st.lists(NAMES, max_size=3).map(tuple))
OUTPUTS = st.lists(NAMES, min_size=1, max_size=2).map(tuple)
BODIES = st.lists(STATEMENTS, max_size=3).map(tuple)
LOCAL = st.lists(
    st.builds(ast.Function, st.lists(INPUTS, min_size=1, max_size=2).map(tuple), OUTPUTS, BODIES, st.just(()), WORDS),
    max_size=2,
    unique_by=lambda f: f.name,
).map(tuple)
FUNCTIONS = st.builds(ast.Function, st.lists(INPUTS, max_size=3).map(tuple), OUTPUTS, BODIES, LOCAL)
