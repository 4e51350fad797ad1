"""Rules for mistakes in ``O[i : N] = +(A[i] * B[i]), i < 3 no_defract default D;``."""

from __future__ import annotations

from collections.abc import Callable

from tile_ir.diagnostics import Diagnostic

from tile_lang.build import NO_CALLS, OWN_STATEMENT
from tile_lang.faults import ARITHMETIC, COMPARISONS, OPERATORS, Context, in_words, last_clause

_AGGREGATIONS = {
    "sum": "+", "add": "+", "max": ">", "maximum": ">", "min": "<", "minimum": "<", "prod": "*", "product": "*", "mul": "*", "assign": "=",
}  # fmt: skip
_SYMBOLS = "the aggregations are + (sum), * (product), > (max), < (min) and = (assign)"


_OWN_SUBSCRIPT = "compute it before, as in J = I + 1, and write A[J[i]]"

# --- index formulas --------------------------------------------------------------------------------------------


def _formula(c: Context) -> Diagnostic | None:
    if not c.in_formula:
        return None
    kind, previous = c.token.kind, c.at(-1)
    if kind == "LSQB" and previous.kind == "ID":
        return c.report("TILE-E022", "a subscript that is data stands alone", _OWN_SUBSCRIPT, previous)
    if kind in ARITHMETIC and previous.kind == "RSQB":
        return c.report("TILE-E022", "a subscript that is data stands alone", _OWN_SUBSCRIPT)
    if kind == "LPAR" and previous.kind in ("ID", "IDX"):
        return c.report("TILE-E022", "index formulas call no functions", NO_CALLS, previous)
    if kind == "COMMA" and c.open_brackets and c.open_brackets[-1].kind == "LPAR":
        called = c.tokens[c.tokens.index(c.open_brackets[-1]) - 1]
        if called.kind in ("ID", "IDX"):
            return c.report("TILE-E022", "index formulas call no functions", NO_CALLS, called)
    if kind == "FLOAT":
        return c.report("TILE-E022", "index formulas hold integers only", "a fraction is written as i / 2")
    if kind in ("TILDE", "SHL", "SHR", "AMP", "BAR", "CARET", "QUESTION"):
        return c.report("TILE-E022", f"index formulas have no '{c.token.text}'", "they have + - * / and parentheses")
    if previous.kind == "INT" and kind == "ID":
        return c.report("TILE-E001", "a number stands beside a name", f"write '{previous.text} * {c.token.text}'")
    return None


# --- target ----------------------------------------------------------------------------------------------------


def _target(c: Context) -> Diagnostic | None:
    if c.region != "target":
        return None
    kind, previous = c.token.kind, c.at(-1)
    in_sizes = any(t.kind == "COLON" for t in c.before)
    if in_sizes and previous.kind == "IDX" and kind == "COLON":
        return c.report(
            "TILE-E014",
            "indices and sizes are two lists",
            "write all indices, then all sizes: O[i, j : N, M]",
            previous,
        )
    if kind == "COLON" and previous.kind == "COMMA":
        return c.report("TILE-E014", "expected an index formula before ':'", "remove the ','", previous)
    if not in_sizes and kind in COMPARISONS:
        return c.report("TILE-E012", "constraints stand behind the contraction", "write 'O[i : N] = +(A[i]), i < 3;'")
    if previous.kind == "COLON" and c.only("RSQB"):
        return c.report(
            "TILE-E014", "the indices before ':' are missing", "write one index for each size: O[i, j : N, M]"
        )
    if previous.kind == "COLON" and kind == "RSQB":
        return c.report("TILE-E014", "the sizes after ':' are missing", "write one size for each index: O[i, j : N, M]")
    if previous.kind == "RSQB" and not c.open_brackets:
        return _after_target(c)
    return None


def _after_target(c: Context) -> Diagnostic | None:
    kind = c.token.kind
    if kind == "EQEQ":
        return c.report(
            "TILE-E015",
            "'==' compares; a contraction assigns",
            "write '= =(…)' with a blank for the assign aggregation",
        )
    if kind in ("LSQB", "LDSQB"):
        return c.report("TILE-E014", "all indices stand in one pair of brackets", "write O[i, j : N, M]")
    if kind in ("LE", "GE"):
        symbol = c.token.text[0]
        return c.report("TILE-E011", f"'{c.token.text}' is a comparison", f"write '= {symbol}(…)'")
    return c.report(
        "TILE-E001",
        f"expected '=', not '{c.token.text or 'the end of the text'}'",
        "a contraction is written O[i : N] = +(A[i, j]);",
    )


# --- aggregation and body --------------------------------------------------------------------------------------


def _aggregation(c: Context) -> Diagnostic | None:
    if c.region != "aggregation":
        return None
    kind, text, previous = c.token.kind, c.token.text, c.at(-1)
    if previous.kind != "EQUAL" or c.only("LPAR"):
        return c.report("TILE-E011", "the body of a contraction stands in parentheses", f"write '{previous.text}(…)'")
    if kind == "IDX" and text in _AGGREGATIONS:
        return c.report(
            "TILE-E011",
            f"the aggregation '{text}' is written '{_AGGREGATIONS[text]}'",
            f"write '= {_AGGREGATIONS[text]}(…)'",
        )
    if kind == "ID" and c.at(1).kind == "LSQB":
        return c.report(
            "TILE-E011",
            "the aggregation is missing",
            f"write '= +({text}[…])', or '= =({text}[…])' to copy; {_SYMBOLS}",
        )
    if kind == "LPAR":
        return c.report("TILE-E011", "the aggregation before '(' is missing", _SYMBOLS)
    if kind in ("ID", "INT", "FLOAT", "IDX"):
        target = next((t.text for t in c.tokens if t.kind == "ID"), "O")
        return c.report(
            "TILE-E011",
            "expected an aggregation after '='",
            f"an elementwise statement has no brackets on the left: {target} = …; {_SYMBOLS}",
        )
    return c.report("TILE-E011", f"'{text}' is not an aggregation", _SYMBOLS)


def _body(c: Context) -> Diagnostic | None:
    if c.region != "body":
        return None
    return _operand(c) if "ID" in c.expected else _between(c)


def _operand(c: Context) -> Diagnostic | None:
    kind = c.token.kind
    if kind == "IDX" and c.at(1).kind == "LSQB":
        text = c.token.text
        message = f"'{text}' cannot name a tensor: names of tensors and dimensions start with an upper-case letter"
        return c.report("TILE-E006", message, f"write '{text[0].upper()}{text[1:]}'")
    if kind in ("IDX", "INT", "FLOAT", "MINUS", "TILDE", "LPAR"):
        return c.report("TILE-E013", "a contraction body holds indexed tensors only", OWN_STATEMENT)
    if kind == "RPAR":
        return c.report("TILE-E013", "expected an indexed tensor in the body", "write '+(A[i])'")
    return None


def _between(c: Context) -> Diagnostic | None:
    kind, text, previous = c.token.kind, c.token.text, c.at(-1)
    if previous.kind == "ID" and c.only("LSQB"):
        if kind == "LPAR":
            return c.report("TILE-E013", "a contraction body calls no functions", OWN_STATEMENT, previous)
        return c.report(
            "TILE-E013",
            f"'{previous.text}' needs its indices here",
            f"write '{previous.text}[i]', or '{previous.text}[]' for a scalar",
            previous,
        )
    if kind in ("LSQB", "LDSQB") and previous.kind == "RSQB":
        return c.report("TILE-E014", "all indices stand in one pair of brackets", "write A[i, j]")
    if kind == "EQUAL" and "EQEQ" in c.expected:
        return c.report("TILE-E015", "'=' assigns; a comparison is '=='", "write '=='")
    if kind == "COLON" and any(t.kind == "QUESTION" for t in c.before):
        return c.report(
            "TILE-E013", "the conditional body has no ':' part", "where the comparison fails, 0 is contributed"
        )
    if kind == "COMMA":
        return c.report(
            "TILE-E013", "tensors in a body are combined by '*', '+' or '=='", "constraints stand behind ')'"
        )
    if kind in OPERATORS | {"COLON"}:
        return c.report(
            "TILE-E013", f"'{text}' cannot combine two tensors in a body: only '*', '+' and '==' can", OWN_STATEMENT
        )
    return None


def _access(c: Context) -> Diagnostic | None:
    if c.region != "access":
        return None
    if c.token.kind == "COLON":
        hint = (
            "write every index, as in A[i, j]"
            if c.at(-1).kind in ("LSQB", "COMMA")
            else "remove ':' and what follows it"
        )
        return c.report("TILE-E014", "sizes are given for the output only", hint)
    if c.token.kind in COMPARISONS | {"EQUAL"} and not _bracket_is_open_to_the_end(c):
        return c.report(
            "TILE-E022",
            f"index formulas have no '{c.token.text}'",
            "constraints stand behind the contraction: +(A[i]), i < 3",
        )
    return None


def _bracket_is_open_to_the_end(c: Context) -> bool:
    depth = len(c.open_brackets)
    for token in c.tokens[c.fault.position :]:
        depth += (token.kind in ("LPAR", "LSQB")) - (token.kind in ("RPAR", "RSQB"))
    return depth > 0


# --- constraints and flags -------------------------------------------------------------------------------------


def _constraints(c: Context) -> Diagnostic | None:
    if c.region != "constraints":
        return None
    clause = last_clause(c.before)
    return _clause(c) if clause[0].kind == "COMMA" and c.at(-1) is not clause[0] else _between_clauses(c)


def _between_clauses(c: Context) -> Diagnostic | None:
    kind = c.token.kind
    after_comma = c.at(-1).kind == "COMMA"
    if after_comma and kind in ("NO_DEFRACT", "DEFAULT"):
        return c.report("TILE-E018", f"no ',' stands before '{c.token.text}'", "remove the ','", c.at(-1))
    if c.at(-1).kind == "DEFAULT":
        return c.report("TILE-E018", "'default' takes the name of a tensor", "write 'default D' and define D before")
    if kind == "COMMA":
        return c.report("TILE-E018", "constraints stand before 'no_defract' and 'default'")
    if not after_comma and kind in ("IDX", "INT", "LPAR") and "COMMA" in c.expected:
        return c.report("TILE-E012", "a ',' is missing before the constraint", "write '+(A[i]), i < 3'")
    if not after_comma and kind in OPERATORS and "COMMA" in c.expected:
        return c.report(
            "TILE-E013", "a contraction stands alone in its statement", "compute with its result in the next statement"
        )
    return None


def _clause(c: Context) -> Diagnostic | None:
    clause = last_clause(c.before)
    if c.at(-1).kind == "DEFAULT":
        return c.report("TILE-E018", "'default' takes the name of a tensor", "write 'default D' and define D before")
    if c.open_brackets and c.token.kind == "LT" and all(t.kind != "LT" for t in clause):
        return c.report(
            "TILE-E012", "a constraint stands without parentheses", "write '+(A[i]), i < 3'", c.open_brackets[-1]
        )
    if any(t.kind == "LT" for t in clause):
        return _bound(c, [t.text for t in clause[1:]])
    hints = {
        "LE": "for 'i <= N' write 'i < N + 1'; the lower bound 0 is implied",
        "GT": "for 'i > k' write 'i - k - 1 < N' with N large enough; the lower bound 0 is implied",
        "GE": "for 'i >= k' write 'i - k < N' with N large enough; the lower bound 0 is implied",
        "EQEQ": "for 'i == k' write 'i - k < 1'",
        "EQUAL": "for 'i == k' write 'i - k < 1'",
    }
    if c.token.kind in hints:
        low = c.token.kind == "LE" and [t.text for t in clause[1:]] == ["0"]
        hint = "the lower bound 0 is implied: write 'i < N' alone" if low else hints[c.token.kind]
        return c.report("TILE-E012", f"a constraint is 'formula < bound', not '{c.token.text}'", hint)
    if c.token.kind in ("SEMI", "COMMA", "NO_DEFRACT", "DEFAULT", "RBRACE", "NE"):
        return c.report("TILE-E012", "a constraint is 'formula < bound'", "write 'i < 3'; the lower bound 0 is implied")
    return None


def _bound(c: Context, clause: list[str]) -> Diagnostic | None:
    if c.token.kind in COMPARISONS | {"EQUAL"} and c.at(-1).kind != "LT":
        low = clause[:2] == ["0", "<"]
        hint = (
            "the lower bound 0 is implied: write 'i < N' alone"
            if low
            else "write one constraint after another: i < N, j < M"
        )
        return c.report("TILE-E012", "a constraint has one '<'", hint)
    if c.token.kind in ("AMP", "BAR", "CARET"):
        return c.report(
            "TILE-E012", f"constraints are not joined by '{c.token.text}'", "separate them by ',': all of them hold"
        )
    if c.token.kind in ("SHL", "SHR", "QUESTION"):
        return c.report(
            "TILE-E012", f"'{c.token.text}' in a bound needs parentheses", f"write 'i < (N {c.token.text} …)'"
        )
    if c.token.kind == "EQUAL":
        return c.report("TILE-E012", "expected a bound after '<'", f"expected {in_words(c.expected)}")
    return None


CONTRACTION_RULES: tuple[Callable[[Context], Diagnostic | None], ...] = (
    _formula,
    _target,
    _aggregation,
    _body,
    _access,
    _constraints,
)
