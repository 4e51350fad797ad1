"""Sources that nobody would write: programs changed at random by characters, by tokens and by whole statements.

Data for tests: whatever a text says, a user may see a TileError and nothing else. `mutants(seed)` gives the same
texts for the same seed on every machine. What is exchanged for what follows the grammar (a name for a name, a
bracket's content for another's), so that many of the texts parse, and many of those bind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from random import Random

from tile_ir.diagnostics import Source
from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.program.nodes import TensorType

from tile_lang.builtins import BUILTINS
from tile_lang.examples import TUTORIAL
from tile_lang.lexer import KEYWORDS, PUNCTUATION, Token, lex

Texts = list[str]


@frozen
class Mutant:
    """A text with types for what may be its inputs; `seed` and `number` make it again."""

    seed: int
    number: int
    text: str
    types: Mapping[str, TensorType]


LAYERS = """function layer(X[B, N], W[N, M], V) -> (H, A) {
    H[b, m : B, M] = +(X[b, n] * W[n, m]);
    A = relu(H + V);
}
function (X[B, N], W[N, M], V[M]) -> (P, L) {
    H, A = layer(X, W, V);  // a layer
    P = builtin_softmax(A, B, M) + stop_gradient(A) - reverse_grad(A, 0.5);
    C[m : M] = >(P[wrap(b - 1), m]), b < B / 2 default V;
    S[m : M] = +(C[m - k]), k < M;
    L[] = +(S[m] == V[m] ? C[m]);
}
"""
CALLS = """function (A[N, M], I[K], S) -> (O, P, Q, R, U) {
    J = as_int(I, 32);
    B = as_float(A, 64) + as_int(A, 8) * as_uint(J, 16) - element(tuple(A, J), 1);
    O = cond(A > 0.5, relu(B), sigmoid(-A)) + pow(A, 2) - abs(max(A, min(B, 1e-3)));
    P = gather(A, J) * 2 + simple_reduce(scatter(gather(A, J), J, A), 1, M);
    Q = (index(A, 0) ^ ~J << 3 >> N & 255 | J) / reshape(J + match(2, K), 1, K);
    T = prng_step(as_uint(S, 32), N, M + 1);
    R[i, j : N, floor(M * 1.5)] = *(T[2 * i + 1, j / 3]), i - j < mod(N, 3) no_defract;
    W[J[k], m : N, M] = >(A[J[k], m] * A[0, J[k]]) default A;
    [[pid(a, b)]] U = assert_fits(broadcast(1, M)) ? round(recip(exp(A))) + prng_value(T) : as_bool(A, 1);
}
"""
"""Every kind of statement and call."""

NUMBERS = (
    *("2147483648", "9223372036854775808", "340282366920938463463374607431768211456", "1e38", "1e999", "0.0", "1e-400"),
    *("0x1F", "0ba", "1_000", "1.", ".5"),
)
SIZES = (0, 1, 1, 2, 2, 3, 4, 5, 7, 8, 16, 17)
STRANGE = "\x00\t\n\r \"'#$%&()*+,-./:;<=>?@[\\]^_`{|}~0123456789azAZ\u00e9\u03c0\ufeff\u2028\U0001f600\ud800"
KINDS: Mapping[str, Texts] = {
    "INT": [*"0123456789", "64", "255", "256", "65536", *NUMBERS],
    "FLOAT": ["0.5", "2.0", "1e3", "1e-3", *NUMBERS],
    "ID": [*"ABCDEIKMNORSX", *BUILTINS, "float32"],
    "IDX": [*"ijklmnxy", *BUILTINS, "co"],
    "operator": ["+", "-", "*", "/", "<", ">", "<=", ">=", "==", "!=", "&", "|", "^", "<<", ">>"],
    "punct": [*PUNCTUATION, "&&", "**", "%", "+=", ":="],
    "word": [*KEYWORDS],
}
"""What may stand where a token of a kind stands."""
OPERANDS = ("ID", "ID", "IDX", "INT", "FLOAT", "operator")
"""What is changed most often: exchanging these leaves the grammar whole."""


def mutants(seed: int, start: int = 0) -> Iterator[Mutant]:
    """Endless; mutant `number` depends on `seed` and its number only."""
    number = start
    while True:
        random = Random(f"{seed}/{number}")
        text, shapes = random.choice(SOURCES)
        for _ in range(random.choice((1, 1, 1, 2, 3))):
            text = random.choice(MUTATIONS)(random, text)
        yield Mutant(seed, number, text, _types(random, shapes))
        number += 1


def _types(random: Random, shapes: Mapping[str, Sequence[int]]) -> dict[str, TensorType]:
    """The example's shapes as they are, or with a few other sizes, ranks and dtypes."""
    types: dict[str, TensorType] = {}
    usual = random.choice((DType.FLOAT32, DType.FLOAT32, *DType))
    for name, shape in shapes.items():
        sizes = [random.choice(SIZES) if random.random() < 0.1 else n for n in shape]
        if random.random() < 0.05:
            sizes = [random.choice(SIZES) for _ in range(random.randrange(5))]
        types[name] = TensorType(random.choice([*DType]) if random.random() < 0.1 else usual, tuple(sizes))
    return types


# --- by characters -------------------------------------------------------------------------------


def _insert(random: Random, text: str) -> str:
    at = random.randrange(len(text) + 1)
    return text[:at] + random.choice(STRANGE) * random.choice((1, 1, 1, 2, 40)) + text[at:]


def _delete(random: Random, text: str) -> str:
    at = random.randrange(len(text) + 1)
    return text[:at] + text[at + random.choice((1, 1, 2, 8, 1000)) :]


def _repeat(random: Random, text: str) -> str:
    at = random.randrange(len(text) + 1)
    return text[:at] + text[at : at + random.randrange(40)] * random.choice((2, 3, 20)) + text[at:]


# --- by tokens -----------------------------------------------------------------------------------


def _tokens(text: str) -> list[Token]:
    return lex(Source(text)).tokens[:-1]


def _kind(token: Token) -> str:
    if token.kind in KINDS:
        return token.kind
    if token.text in KINDS["operator"]:
        return "operator"
    return "word" if token.kind in KEYWORDS.values() else "punct"


def _on_token(change: Callable[[Random, Token, list[Token]], str]) -> Callable[[Random, str], str]:
    """A mutation that writes another text in place of one token."""

    def mutate(random: Random, text: str) -> str:
        tokens = _tokens(text)
        if not tokens:
            return text
        kind = _kind(random.choice(tokens)) if random.random() < 0.2 else random.choice(OPERANDS)
        token = random.choice([t for t in tokens if _kind(t) == kind] or tokens)
        return f"{text[: token.start]}{change(random, token, tokens)}{text[token.end :]}"

    return mutate


def _of_its_kind(random: Random, token: Token, tokens: list[Token]) -> str:
    """Most often a token that stands in the text already."""
    kind = _kind(token)
    here = [t.text for t in tokens if _kind(t) == kind]
    return random.choice(here if random.random() < 0.5 else KINDS[kind])


def _of_any_kind(random: Random, token: Token, tokens: list[Token]) -> str:
    return f" {random.choice(KINDS[random.choice([*KINDS])])} "


def _none(random: Random, token: Token, tokens: list[Token]) -> str:
    return ""


def _with_another(random: Random, token: Token, tokens: list[Token]) -> str:
    return f"{token.text} {random.choice(tokens).text}"


def _in_a_call(random: Random, token: Token, tokens: list[Token]) -> str:
    name = random.choice([*BUILTINS])
    more = ", ".join(t.text for t in random.choices(tokens, k=random.randrange(3)))
    return f"{name}({token.text}{', ' if more else ''}{more})"


# --- by brackets and statements ------------------------------------------------------------------

OPEN, CLOSE = "([{", ")]}"


Pieces = dict[str, list[tuple[int, int]]]
"""[start, end) by characters, of each kind of piece."""


def _groups(text: str) -> Pieces:
    """What stands between matching brackets, by the bracket."""
    stack: list[int] = []
    found: Pieces = {bracket: [] for bracket in OPEN}
    for at, c in enumerate(text):
        if c in OPEN:
            stack.append(at + 1)
        elif c in CLOSE and stack:
            start = stack.pop()
            found[text[start - 1]].append((start, at))
    return found


def _statements(text: str) -> Pieces:
    """The header, the statements, and what follows the last one."""
    ends = [0, *(at + 1 for at, c in enumerate(text) if c in ";{"), len(text)]
    found = [*pairwise(ends)]
    return {"header": found[:1], "statement": found[1:-1], "end": found[-1:]}


def _exchange(pieces: Callable[[str], Pieces]) -> Callable[[Random, str], str]:
    """A mutation that writes a piece of this or of another text in place of a piece."""

    def mutate(random: Random, text: str) -> str:
        other = text if random.random() < 0.5 else random.choice(SOURCES)[0]
        here, there = pieces(text), pieces(other)
        kinds = [kind for kind in here if here[kind] and there[kind]]
        if not kinds:
            return text
        kind = random.choice(kinds)
        (start, end), (first, last) = random.choice(here[kind]), random.choice(there[kind])
        return text[:start] + other[first:last] + text[end:]

    return mutate


def _copy_statement(random: Random, text: str) -> str:
    statements = _statements(text)["statement"]
    if not statements:
        return text
    (start, end), (_, at) = random.choices(statements, k=2)
    return text[:at] + text[start:end] + text[at:]


SOURCES: Sequence[tuple[str, Mapping[str, Sequence[int]]]] = [
    *((example.source, example.shapes) for example in TUTORIAL),
    *((LAYERS, {"X": (4, 3), "W": (3, 5), "V": (5,)}),) * 4,
    *((CALLS, {"A": (3, 2), "I": (2,), "S": (3, 2048)}),) * 4,
]
MUTATIONS: Sequence[Callable[[Random, str], str]] = (
    _insert,
    _delete,
    _repeat,
    *(_on_token(_of_its_kind),) * 8,
    _on_token(_of_any_kind),
    _on_token(_none),
    _on_token(_with_another),
    *(_on_token(_in_a_call),) * 2,
    *(_exchange(_groups),) * 3,
    *(_exchange(_statements),) * 3,
    _copy_statement,
)
"""Those that keep more of the grammar are drawn more often."""
