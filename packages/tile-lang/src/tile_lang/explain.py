"""From a fault of the automaton to a diagnostic that says what was probably meant.

Each rule looks at the surroundings and answers with a diagnostic or None; the first answer wins. The tables at
the end give the order: special mistakes first, "expected …" last.
"""

from __future__ import annotations

from collections.abc import Callable

from tile_ir.diagnostics import Diagnostic

from tile_lang.explain_contraction import CONTRACTION_RULES
from tile_lang.explain_header import HEADER_RULES
from tile_lang.faults import (
    CLOSERS,
    COMPARISONS,
    EXPRESSION,
    OPENERS,
    OPERATORS,
    Context,
    Fault,
    in_words,
)
from tile_lang.foreign import NUMBERS
from tile_lang.lexer import KEYWORDS, Lexed, Token

Rule = Callable[[Context], Diagnostic | None]

_WORD_OPERATORS = {"and": "&", "or": "|", "not": "~", "mod": "mod(A, B)", "is": "==", "xor": "^"}
_NO_LOOPS = (
    "a contraction runs over all values of its indexes, as in O[i : N] = +(A[i, k]); tile.scan, tile.repeat and "
    "tile.while_loop repeat whole functions"
)
_STATEMENT_WORDS = {
    "return": "outputs are named in the header: -> (O)",
    "for": _NO_LOOPS,
    "if": "use 'C ? A : B'",
    "else": "use 'C ? A : B'",
    "while": _NO_LOOPS,
    "let": "write 'A = …;' alone",
    "var": "write 'A = …;' alone",
    "const": "write 'A = …;' alone",
    "float": "types follow from the inputs: write 'A = …;' alone",
    "int": "types follow from the inputs: write 'A = …;' alone",
    "def": "write 'function name(A) -> (B) { … }' before the function that calls it",
}


def explain(fault: Fault, start: str, tokens: list[Token], lexed: Lexed, following: Token) -> Diagnostic:
    """The diagnostic of a fault in one piece (header or statement)."""
    context = Context(fault, start, tokens, lexed, following)
    rules = HEADER_RULES if start == "header" else STATEMENT_RULES
    found = (rule(context) for rule in (*rules, *COMMON_RULES))
    return next(d for d in found if d is not None)


# --- statements ------------------------------------------------------------------------------------------------


def _attribute(c: Context) -> Diagnostic | None:
    if c.region != "attribute":
        return None
    what = "a lower-case name" if "IDX" in c.expected else in_words(c.expected)
    return c.report("TILE-E019", f"expected {what} in an attribute", "write it as [[pid(name)]]")


def _statement_word(c: Context) -> Diagnostic | None:
    if c.fault.position or c.token.text not in _STATEMENT_WORDS:
        return None
    return c.report("TILE-E025", f"Tile has no '{c.token.text}' statement", _STATEMENT_WORDS[c.token.text])


def _assigns_nothing(c: Context) -> Diagnostic | None:
    if c.region != "start":
        return None
    first = c.tokens[0]
    if c.token.kind in ("SEMI", "RBRACE", "$END") or (c.fault.position == 0 and c.at(1).kind == "LPAR"):
        return c.report("TILE-E025", "a statement must assign a tensor", "write 'A = …;'", first)
    return None


def _strange_start(c: Context) -> Diagnostic | None:
    if c.region != "start":
        return None
    if c.token.kind == "LSQB" and c.fault.position == 0:
        return c.report("TILE-E019", "attributes stand in double brackets", "write [[pid(name)]]")
    if c.token.kind in ("INT", "FLOAT", *OPERATORS):
        return c.report("TILE-E025", "a statement starts with the tensor it assigns", "write 'A = …;'")
    return None


def _strange_targets(c: Context) -> Diagnostic | None:
    """What is no name among those that a tuple is assigned to."""
    if c.region != "assign" or c.at(-1).kind not in ("COMMA", "ID") or any(t.kind == "EQUAL" for t in c.before):
        return None
    if c.token.kind in ("LSQB", "LDSQB"):
        return c.report("TILE-E025", "a contraction assigns one tensor", "write one statement for each")
    return lower_case(c, c.token, "tensor") if c.token.kind == "IDX" else None


def _lower_case_target(c: Context) -> Diagnostic | None:
    if (
        c.fault.position != len(_attributes(c))
        or c.token.kind != "IDX"
        or c.at(1).kind not in ("EQUAL", "LSQB", "EQEQ")
    ):
        return None
    return lower_case(c, c.token, "tensor")


def _attributes(c: Context) -> list[Token]:
    ends = [i for i, t in enumerate(c.before) if t.kind == "RDSQB"]
    return c.before[: ends[-1] + 1] if ends and c.tokens[0].kind == "LDSQB" else []


def lower_case(c: Context, token: Token, what: str) -> Diagnostic:
    """A lower-case name where a tensor or dimension belongs."""
    article = "a tensor" if what == "tensor" else "a dimension"
    message = f"'{token.text}' cannot name {article}: names of tensors and dimensions start with an upper-case letter"
    written = f"write '{token.text[0].upper()}{token.text[1:]}'"
    return c.report("TILE-E006", message, NUMBERS.get(token.text, written) if what == "tensor" else written, token)


def _assign_with_equality(c: Context) -> Diagnostic | None:
    if c.region != "start" or c.token.kind != "EQEQ":
        return None
    return c.report("TILE-E015", "'==' compares; a statement assigns", "write '='")


def _unindexed_contraction(c: Context) -> Diagnostic | None:
    symbols = ("PLUS", "STAR", "GT", "LT", "EQUAL")
    if c.region != "assign" or c.at(-1).kind != "EQUAL" or c.token.kind not in symbols or c.at(1).kind != "LPAR":
        return None
    name = c.at(-2)
    hint = f"write '{name.text}[] = …' for a scalar, or '{name.text}[n : N] = …'"
    return c.report("TILE-E014", "the output of a contraction needs brackets", hint, name)


def _indexed_tensor(c: Context) -> Diagnostic | None:
    if c.region != "assign" or c.token.kind not in ("LSQB", "LDSQB") or c.at(-1).kind not in ("ID", "RPAR"):
        return None
    before = c.at(-3) if c.at(-2).kind == "LPAR" else c.at(-1)
    symbol = {"max": ">", "min": "<", "sum": "+", "prod": "*"}.get(before.text)
    if symbol:
        hint = f"for an aggregation write 'O[n : N] = {symbol}(…)'"
        return c.report(
            "TILE-E011", f"'{before.text}' of an indexed tensor is a contraction, written '{symbol}'", hint, before
        )
    hint = "elementwise statements name whole tensors; to pick elements write 'O[n : N] = =(A[n + 1]);'"
    return c.report("TILE-E021", "a tensor can be indexed in a contraction only", hint)


def _lower_case_operand(c: Context) -> Diagnostic | None:
    """A lower-case name in an expression that no parenthesis follows."""
    name = c.at(-1)
    if name.kind != "IDX" or not c.only("LPAR"):
        return None
    if name.text in _WORD_OPERATORS:
        return _word_operator(c, name)
    if c.token.kind in ("ID", "INT", "FLOAT"):
        hint = f"write '{name.text}(…)'"
        return c.report("TILE-E001", f"the arguments of '{name.text}' need parentheses", hint)
    return lower_case(c, name, "tensor" if c.region == "assign" else "dimension")


def _word_operator(c: Context, name: Token) -> Diagnostic:
    hint = f"write '{_WORD_OPERATORS[name.text]}'"
    return c.report("TILE-E008", f"Tile has no operator '{name.text}'", hint, name)


def _word_between(c: Context) -> Diagnostic | None:
    if c.token.kind == "IDX" and c.token.text in _WORD_OPERATORS and "PLUS" in c.expected:
        return _word_operator(c, c.token)
    return None


def _chained(c: Context) -> Diagnostic | None:
    if c.token.kind not in COMPARISONS or "AMP" not in c.expected:
        return None
    hint = "write '(A < B) & (B < C)', or add parentheses"
    return c.report("TILE-E010", f"'{c.token.text}' after another comparison: comparisons do not chain", hint)


def _single_equal(c: Context) -> Diagnostic | None:
    if c.token.kind != "EQUAL" or not {"EQEQ", "AMP"} & c.expected:
        return None
    if (
        c.region == "assign"
        and not c.open_brackets
        and sum(t.kind == "EQUAL" for t in c.before) == 1
        and c.at(-2).kind == "EQUAL"
    ):
        return c.report("TILE-E015", "a statement assigns one tensor", "write two statements, or '==' to compare")
    return c.report("TILE-E015", "'=' assigns; a comparison is '=='", "write '=='")


def _number_suffix(c: Context) -> Diagnostic | None:
    number = c.at(-1)
    if number.kind not in ("INT", "FLOAT") or c.token.kind not in ("ID", "IDX"):
        return None
    if c.token.text.lower() in ("f", "l", "u", "ul", "ll", "h", "lf") and number.end == c.token.start:
        return c.report("TILE-E009", f"numbers have no suffix '{c.token.text}'", f"write {number.text}")
    return c.report("TILE-E001", "a number stands beside a name", f"write '{number.text} * {c.token.text}'")


def _no_arguments(c: Context) -> Diagnostic | None:
    call = (
        c.at(-1).kind == "LPAR" and c.at(-2).kind in ("ID", "IDX") and c.region in ("assign", "target", "constraints")
    )
    if not call or c.token.kind != "RPAR":
        return None
    return c.report("TILE-E020", f"'{c.at(-2).text}' is called without arguments", None, c.at(-2))


def _unary_plus(c: Context) -> Diagnostic | None:
    if c.token.kind != "PLUS" or not c.expected >= {"INT", "MINUS"}:
        return None
    return c.report("TILE-E008", "Tile has no prefix '+'", "remove it")


def _half_conditional(c: Context) -> Diagnostic | None:
    if c.region != "assign" or "COLON" not in c.expected or c.token.kind not in ("SEMI", "RPAR", "RBRACE", "COMMA"):
        return None
    return c.report("TILE-E001", "'?' needs a ':' part", "write 'C ? A : 0'")


# --- common ----------------------------------------------------------------------------------------------------


def _keyword(c: Context) -> Diagnostic | None:
    token = c.token
    if token.text not in KEYWORDS or not {"ID", "IDX"} & c.expected:
        return None
    if token.kind == "FUNCTION" and c.start == "statement" and c.fault.position == 0:
        hint = "close it with '}'; a function that it calls stands before it: function name(A) -> (B) { … }"
        return c.report("TILE-E004", "a function inside a function", hint)
    return c.report(
        "TILE-E017", f"'{token.text}' is a keyword", f"write '#{token.text}' or '${token.text}' to use it as a name"
    )


def _unclosed(c: Context) -> Diagnostic | None:
    """A bracket that is open at the fault and that the rest of the piece does not close."""
    stack: list[Token] = []
    for index, token in enumerate(c.tokens):
        if c.start == "header" and token.kind == "LBRACE":
            break
        if token.kind in OPENERS:
            stack.append(token)
        elif token.kind in CLOSERS:
            if not stack or OPENERS[stack[-1].kind] != token.text:
                return _mismatch(c, stack, token) if index <= c.fault.position or index == len(c.tokens) else None
            stack.pop()
    opened = [t for t in stack if t in c.open_brackets]
    if not opened:
        return None
    message = f"this '{opened[-1].text}' is never closed"
    return c.report("TILE-E003", message, f"'{OPENERS[opened[-1].kind]}' is missing", opened[-1])


def _mismatch(c: Context, stack: list[Token], token: Token) -> Diagnostic:
    if not stack:
        return c.report("TILE-E003", f"'{token.text}' closes nothing", "remove it, or open it earlier", token)
    opener = stack[-1]
    message = f"'{token.text}' cannot close '{opener.text}'"
    return c.report("TILE-E003", message, f"write '{OPENERS[opener.kind]}'", token)


def _missing_semicolon(c: Context) -> Diagnostic | None:
    if c.start != "statement" or "SEMI" not in c.expected:
        return None
    previous = c.at(-1)
    ends = c.fault.position == len(c.tokens)
    begins = c.token.kind == "ID" and c.at(1).kind in ("EQUAL", "LSQB", "EQEQ")
    if not (ends or c.token.kind == "LDSQB" or begins):
        return None
    point = Token("", "", previous.end - 1, previous.end)
    hint = "'//' starts a comment; integer division is '/'" if _comment_follows(c, previous) else "add ';'"
    return c.report("TILE-E005", "the ';' after this statement is missing", hint, point)


def _comment_follows(c: Context, token: Token) -> bool:
    return any(t.start == token.end or t.start == token.end + 1 for t in c.lexed.comments) and not any(
        c.lexed.source.text[t.start : t.start + 3] == "// " for t in c.lexed.comments if t.start >= token.end
    )


def _trailing_comma(c: Context) -> Diagnostic | None:
    if c.at(-1).kind != "COMMA" or c.token.kind not in (*CLOSERS, "SEMI", "COLON", "COMMA"):
        return None
    return c.report("TILE-E001", f"expected {in_words(c.expected)} after ','", "remove the ','", c.at(-1))


def _two_operands(c: Context) -> Diagnostic | None:
    if c.token.kind not in EXPRESSION - {"MINUS"} or not c.expected & OPERATORS:
        return None
    message = f"expected {in_words(c.expected)} before {_shown(c.token)}"
    return c.report("TILE-E001", message, "index formulas are separated by ','" if c.in_formula else None)


def _truncated(c: Context) -> Diagnostic | None:
    if c.token.kind != "$END":
        return None
    return c.report("TILE-E004", f"the text ends where {in_words(c.expected)} is expected", None, c.at(-1))


def _unexpected(c: Context) -> Diagnostic:
    return c.report("TILE-E001", f"expected {in_words(c.expected)}, not {_shown(c.token)}", _hint(c))


def _hint(c: Context) -> str | None:
    kind = c.token.kind
    if kind == "COMMA" and c.open_brackets and c.open_brackets[-1].kind == "LPAR":
        return "parentheses group one expression; several tensors are joined by tuple(A, B)"
    if kind in ("LSQB", "LBRACE") and c.region == "assign":
        return "Tile has no lists; tensors come from inputs and statements"
    if kind == "DOT":
        return "tensors have no members: write 'sqrt(A)', 'reshape(A, N, M)'"
    return None


def _shown(token: Token) -> str:
    if token.kind == "$END":
        return "the end of the text"
    text = token.text if len(token.text) <= 40 else token.text[:37] + "…"
    return f"'{text}'"


STATEMENT_RULES: tuple[Rule, ...] = (
    _attribute,
    _statement_word,
    _assigns_nothing,
    _lower_case_target,
    _assign_with_equality,
    _strange_start,
    _strange_targets,
    _unindexed_contraction,
    _word_between,
    *CONTRACTION_RULES,
    _indexed_tensor,
    _missing_semicolon,
    _keyword,
    _unclosed,
    _chained,
    _single_equal,
    _number_suffix,
    _no_arguments,
    _unary_plus,
)

COMMON_RULES: tuple[Rule, ...] = (
    _keyword,
    _unclosed,
    _half_conditional,
    _lower_case_operand,
    _trailing_comma,
    _truncated,
    _two_operands,
    _unexpected,
)
