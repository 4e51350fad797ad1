"""Canonical layout of Tile text: ``format_source(text)`` changes blanks and line breaks only, and keeps comments.

One statement a line, four blanks in front; a statement longer than `WIDTH` breaks after its ``=`` and then
wherever a line is full. Single blank lines between statements stay; one stands between functions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from tile_ir.diagnostics import Source

from tile_lang.lexer import Lexed, Token, lex
from tile_lang.limits import DEFAULT_LIMITS, Limits

WIDTH = 100
INDENT = " " * 4
CONTINUED = " " * 12

_OPERAND_END = {"ID", "IDX", "INT", "FLOAT", "RPAR", "RSQB"}
_BINARY = {"EQEQ", "NE", "LT", "GT", "LE", "GE", "SHL", "SHR", "PLUS", "MINUS", "STAR", "SLASH", "AMP", "BAR", "CARET"}
_TIGHT_BEFORE = {"COMMA", "SEMI", "RPAR", "RSQB", "RDSQB", "LSQB"}
_TIGHT_AFTER = {"LPAR", "LSQB", "LDSQB"}
_AGGREGATION = {"PLUS", "STAR", "LT", "GT", "EQUAL"}


@dataclass(slots=True)
class _Comment:
    text: str
    own_line: bool


@dataclass(slots=True)
class _Chunk:
    """A header, a statement, or a closing brace: tokens with comments at positions between them."""

    tokens: list[Token] = field(default_factory=list[Token])
    leading: list[_Comment] = field(default_factory=list["_Comment"])
    inner: dict[int, list[_Comment]] = field(default_factory=dict[int, "list[_Comment]"])
    trailing: str = ""
    blank_before: list[bool] = field(default_factory=list[bool])
    """Whether a blank line stands before each leading comment, and before the first token."""

    @property
    def end(self) -> str:
        """The kind of its last token: LBRACE, SEMI or RBRACE."""
        return self.tokens[-1].kind if self.tokens else "LBRACE"


def format_source(text: str | Source, limits: Limits = DEFAULT_LIMITS) -> str:
    """The text in canonical layout; formatting twice changes nothing. Raises what `tile_lang.parse` raises."""
    from tile_lang.parser import parse

    source = text if isinstance(text, Source) else Source(text)
    parse(source, limits)
    lexed = lex(source)
    chunks, rest = _chunks(lexed)
    lines: list[str] = []
    for before, chunk in pairwise([_Chunk(), *chunks]):
        lines += _chunk_lines(chunk, before)
    lines += [c.text for c in rest]
    return "\n".join(lines) + "\n"


# --- splitting -------------------------------------------------------------------------------------------------


def _chunks(lexed: Lexed) -> tuple[list[_Chunk], list[_Comment]]:
    """The chunks in order, and the comments behind the closing brace."""
    text = lexed.source.text
    items = sorted([*lexed.tokens[:-1], *lexed.comments], key=lambda t: t.start)
    chunks, current, end = [_Chunk()], _Chunk(), 0
    for item in items:
        gap = text[end : item.start]
        end = item.end
        if item.kind == "COMMENT":
            _place_comment(item, gap, chunks, current)
            continue
        if not current.tokens:
            current.blank_before.append(gap.count("\n") > 1)
        current.tokens.append(item)
        if item.kind in ("LBRACE", "SEMI", "RBRACE"):
            chunks.append(current)
            current = _Chunk()
    return chunks[1:], current.leading


def _place_comment(item: Token, gap: str, chunks: list[_Chunk], current: _Chunk) -> None:
    comment = _Comment(item.text, "\n" in gap)
    done = chunks[-1]
    if current.tokens:
        current.inner.setdefault(len(current.tokens), []).append(comment)
    elif not comment.own_line and not current.leading and not done.trailing and done.tokens:
        done.trailing = "  " + comment.text
    else:
        current.leading.append(comment)
        current.blank_before.append(gap.count("\n") > 1)


# --- lines -----------------------------------------------------------------------------------------------------


def _chunk_lines(chunk: _Chunk, before: _Chunk) -> list[str]:
    """The lines of a chunk; what stands `before` the first one counts as a header."""
    lines: list[str] = []
    for index, blank in enumerate(chunk.blank_before):
        comment = chunk.leading[index].text if index < len(chunk.leading) else None
        if index == 0 and before.end != "SEMI":
            blank = before.end == "RBRACE"
        if blank and (comment is not None or chunk.end != "RBRACE"):
            lines.append("")
        if comment is not None:
            lines.append(("" if chunk.end == "LBRACE" else INDENT) + comment)
    body = _laid_out(chunk, INDENT if chunk.end == "SEMI" else "")
    body[-1] += chunk.trailing
    return lines + body


def _laid_out(chunk: _Chunk, indent: str) -> list[str]:
    words = _words(chunk.tokens)
    if not chunk.inner:
        return _wrapped(words, indent)
    lines: list[str] = []
    start = 0
    for position in sorted(chunk.inner):
        lines += _filled(words[start:position], CONTINUED if lines else indent)
        for comment in chunk.inner[position]:
            if comment.own_line:
                lines.append(CONTINUED + comment.text)
            else:
                lines[-1] += "  " + comment.text
        start = position
    return lines + _filled(words[start:], CONTINUED)


def _wrapped(words: list[tuple[str, bool]], indent: str) -> list[str]:
    line = indent + "".join(w for w, _ in words).strip()
    if len(line) <= WIDTH:
        return [line]
    equal = next((i for i, (w, _) in enumerate(words) if w.strip() == "="), None)
    if equal is None:
        return _filled(words, indent)
    return _filled(words[: equal + 1], indent) + _filled(words[equal + 1 :], CONTINUED)


def _filled(words: list[tuple[str, bool]], indent: str) -> list[str]:
    """Lines of at most WIDTH where breaks are allowed; the first has `indent`, the others CONTINUED."""
    lines: list[str] = []
    line = ""
    for segment in _segments(words):
        room = WIDTH - len(CONTINUED if lines else indent)
        if line and len(line) + len(segment.rstrip()) > room:
            lines.append((CONTINUED if lines else indent) + line.strip())
            line = segment.lstrip()
        else:
            line += segment
    return [*lines, (CONTINUED if lines else indent) + line.strip()]


def _segments(words: list[tuple[str, bool]]) -> list[str]:
    parts: list[list[str]] = [[]]
    for word, breakable in words:
        if breakable:
            parts.append([])
        parts[-1].append(word)
    return ["".join(p) for p in parts]


# --- blanks ----------------------------------------------------------------------------------------------------


def _words(tokens: list[Token]) -> list[tuple[str, bool]]:
    """Each token with the blank in front of it, and whether a line may break there."""
    words: list[tuple[str, bool]] = []
    prefix = aggregation = False
    for index, token in enumerate(tokens):
        previous = tokens[index - 1] if index else None
        following = tokens[index + 1].kind if index + 1 < len(tokens) else ""
        tight = previous is None or prefix or aggregation or _tight(previous.kind, token.kind)
        binary = token.kind in _BINARY and previous is not None and previous.kind in _OPERAND_END
        breakable = not tight and (binary or token.kind == "QUESTION" or _after_break(previous, token))
        words.append((("" if tight else " ") + _raw(token), breakable))
        aggregation = (
            token.kind in _AGGREGATION and previous is not None and previous.kind == "EQUAL" and following == "LPAR"
        )
        prefix = token.kind in ("MINUS", "TILDE") and (previous is None or previous.kind not in _OPERAND_END)
    return words


def _raw(token: Token) -> str:
    escape = {"ID": "#", "IDX": "$"}.get(token.kind, "")
    return escape + token.text if token.end - token.start > len(token.text) else token.text


def _after_break(previous: Token | None, token: Token) -> bool:
    return previous is not None and (previous.kind in ("COMMA", "RDSQB") or token.kind in ("NO_DEFRACT", "DEFAULT"))


def _tight(previous: str, kind: str) -> bool:
    """True when no blank stands between two tokens."""
    if kind in _TIGHT_BEFORE or previous in _TIGHT_AFTER:
        return True
    if kind == "LPAR":
        return previous in ("ID", "IDX", "LPAR")
    return previous == "INT" and kind == "IDX"
