"""Every diagnostic code of the language with its one-line meaning: E0xx syntax and limits, E1xx binding."""

from __future__ import annotations

CODES: dict[str, str] = {
    "TILE-E001": "a token stands where the grammar allows something else",
    "TILE-E002": "a character that belongs to no token",
    "TILE-E003": "a bracket is opened and never closed, or closed and never opened, or closed by another kind",
    "TILE-E004": "the text ends in the middle of the function",
    "TILE-E005": "the semicolon after a statement is missing",
    "TILE-E006": "a tensor or dimension is named in lower case",
    "TILE-E008": "an operator of another language that Tile does not have",
    "TILE-E009": "a number that is not written as Tile writes numbers",
    "TILE-E010": "comparisons are chained without parentheses",
    "TILE-E011": "an aggregation is spelled as a function or with an unknown symbol",
    "TILE-E012": "a constraint is not of the form formula < bound",
    "TILE-E013": "a contraction body is not one, two or three tensor accesses",
    "TILE-E014": "a contraction's output access is malformed",
    "TILE-E015": "'=' and '==' are confused",
    "TILE-E016": "the function header is malformed",
    "TILE-E017": "a keyword is used as a name",
    "TILE-E018": "no_defract or default is repeated or malformed",
    "TILE-E019": "an attribute is malformed",
    "TILE-E020": "a call has no arguments",
    "TILE-E021": "a tensor is indexed outside a contraction",
    "TILE-E022": "an operation that index formulas do not have",
    "TILE-E023": "a function without outputs",
    "TILE-E024": "text follows the end of the function",
    "TILE-E025": "a statement that assigns nothing",
    "TILE-E050": "one of the limits in tile_lang.Limits is exceeded",
}
