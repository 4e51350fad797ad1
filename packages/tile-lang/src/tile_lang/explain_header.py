"""Rules for mistakes in ``function (inputs) -> (outputs) {``."""

from __future__ import annotations

from collections.abc import Callable

from tile_ir.diagnostics import Diagnostic

from tile_lang.faults import Context

_EXAMPLE = "function (A[M, N]) -> (B) { … }"


def _no_function(c: Context) -> Diagnostic | None:
    if c.fault.position:
        return None
    if c.token.kind == "$END":
        return c.report("TILE-E004", "the text is empty", f"a function looks like: {_EXAMPLE}")
    return c.report("TILE-E016", "a Tile text starts with 'function'", f"write: {_EXAMPLE}")


def _named(c: Context) -> Diagnostic | None:
    """A name without the parentheses that follow it, or around which they are empty."""
    named = c.at(-2).kind == "FUNCTION" and c.at(-1).kind in ("ID", "IDX")
    if named and c.token.kind != "LPAR":
        return c.report("TILE-E016", "inputs stand in parentheses", f"write: {_EXAMPLE}", c.at(-1))
    if c.at(-3).kind == "FUNCTION" and c.at(-1).kind == "LPAR" and c.token.kind == "RPAR":
        return c.report(
            "TILE-E016", "a function that others call has an input or more", "write the value where it is used"
        )
    return None


def _no_outputs(c: Context) -> Diagnostic | None:
    if c.at(-1).kind == "LPAR" and c.at(-2).kind == "ARROW" and c.token.kind == "RPAR":
        return c.report("TILE-E023", "a function needs at least one output", "name it: -> (O)", c.at(-1))
    return None


def _no_arrow(c: Context) -> Diagnostic | None:
    if not c.only("ARROW"):
        return None
    if c.token.kind == "LBRACE":
        return c.report("TILE-E016", "the outputs are missing", "write '-> (O)' before '{'")
    return c.report("TILE-E016", "expected '->' between inputs and outputs", "write '(A) -> (O)'")


def _bare_output(c: Context) -> Diagnostic | None:
    if c.at(-1).kind != "ARROW" or c.token.kind == "LPAR":
        return None
    return c.report(
        "TILE-E016", "outputs stand in parentheses", f"write '-> ({c.token.text})'" if c.token.kind == "ID" else None
    )


def _sized_output(c: Context) -> Diagnostic | None:
    if not _among_outputs(c) or c.token.kind not in ("LSQB", "LDSQB"):
        return None
    return c.report(
        "TILE-E016",
        "outputs have no dimensions in the header",
        "sizes are given where the output is assigned: O[n : N] = …",
    )


def _typed(c: Context) -> Diagnostic | None:
    if c.token.kind != "COLON":
        return None
    return c.report("TILE-E016", "the header declares no types", "dtypes come with the arguments; write the name alone")


def _lower_case(c: Context) -> Diagnostic | None:
    if c.token.kind != "IDX" or "ID" not in c.expected:
        return None
    what = "a dimension" if c.open_brackets[-1].kind == "LSQB" else "a tensor"
    message = f"'{c.token.text}' cannot name {what}: names of tensors and dimensions start with an upper-case letter"
    return c.report("TILE-E006", message, f"write '{c.token.text[0].upper()}{c.token.text[1:]}'")


def _numeric_dimension(c: Context) -> Diagnostic | None:
    if c.token.kind != "INT" or not c.open_brackets or c.open_brackets[-1].kind != "LSQB":
        return None
    return c.report(
        "TILE-E016",
        "a dimension in the header is a name, not a number",
        "write a name such as N; its value comes with the argument",
    )


def _computed_dimension(c: Context) -> Diagnostic | None:
    if (
        c.token.kind not in ("PLUS", "MINUS", "STAR", "SLASH")
        or not c.open_brackets
        or c.open_brackets[-1].kind != "LSQB"
    ):
        return None
    return c.report(
        "TILE-E016",
        "a dimension in the header is a name, not a formula",
        "name it, and compute with the name in the body",
    )


def _no_brace(c: Context) -> Diagnostic | None:
    if not c.only("LBRACE"):
        return None
    return c.report("TILE-E016", "the '{' after the header is missing", f"write: {_EXAMPLE}")


def _among_outputs(c: Context) -> bool:
    return any(t.kind == "ARROW" for t in c.before)


HEADER_RULES: tuple[Callable[[Context], Diagnostic | None], ...] = (
    _no_function,
    _named,
    _no_outputs,
    _no_arrow,
    _bare_output,
    _sized_output,
    _typed,
    _lower_case,
    _numeric_dimension,
    _computed_dimension,
    _no_brace,
)
