"""Instructions on tile registers (AMX), by LLVM's intrinsics with register numbers.

A function that uses them sets all registers up as 16 rows of 64 bytes before its first group, and clears them behind the last.
"""

from __future__ import annotations

from collections.abc import Iterator

from tile_ir.emit.walker import children, walk_functions, walk_statements
from tile_ir.matrix.x86 import (
    CLAIM_LINE,
    FETCH_LINE,
    FETCHES,
    LOAD_TILE,
    ROWS_OF_TILE,
    STORE_TILE,
    TILES,
    WORDS_OF_ROW,
    ZERO_TILE,
)
from tile_ir.semtree.nodes import Alloc, Block, Function, Statement, TileStep, Var

from hal_llvm.emit.code import Code

_MOVES = {LOAD_TILE: "llvm.x86.tileloadd64", STORE_TILE: "llvm.x86.tilestored64"}
_NAMES = {ZERO_TILE: "llvm.x86.tilezero"}
_WORD_BYTES = 4
_PURPOSE = {FETCH_LINE: 0, CLAIM_LINE: 1}
_SECOND, _DATA = 2, 1
"""What LLVM's prefetches are for: reading or writing, from the second cache on, of data."""


def uses_tiles(function: Function) -> bool:
    """The kernel, or a helper of it, has instructions on tile registers."""
    return any(isinstance(s, TileStep) for f in walk_functions(function) for s in walk_statements(f.body))


def sums(body: Block) -> frozenset[str]:
    """Arrays of sums of products alone, none of which is subnormal: products of tiles take such numbers for zeros, and give zeros."""
    statements = list(walk_statements(body))
    steps = [s for s in statements if isinstance(s, TileStep)]
    loaded = {tile for s in steps if s.name == LOAD_TILE for tile in s.tiles}
    stores = [s for s in steps if s.name == STORE_TILE and loaded.isdisjoint(s.tiles)]
    if not stores:
        return frozenset()
    harmless = {id(s) for s in (*stores, *(s for s in steps if s.name != STORE_TILE))}
    others = {name for s in statements if id(s) not in harmless for name in _named(s)}
    own = {s.name for s in statements if isinstance(s, Alloc)}
    return frozenset({name for s in stores for name in _named(s)} & own - others)


def _named(statement: Statement) -> Iterator[str]:
    """The variables that a statement has as they are, pointers above all."""
    return (e.name for e in children(statement) if isinstance(e, Var))


def step(code: Code, node: TileStep, pointer: str) -> None:
    """One instruction; `pointer` is the address of a tile's first row, if it touches memory."""
    if node.name in FETCHES:
        code.call(
            "llvm.prefetch", "void", ("ptr", pointer), *(("i32", str(n)) for n in (_PURPOSE[node.name], _SECOND, _DATA))
        )
        return
    tiles = [("i8", str(tile)) for tile in node.tiles]
    if node.name not in _MOVES:
        code.call(_NAMES.get(node.name, f"llvm.x86.{node.name}"), "void", *tiles)
        return
    code.call(_MOVES[node.name], "void", *tiles, ("ptr", pointer), ("i64", str(node.pitch * _WORD_BYTES)))


def begin(code: Code) -> None:
    """Sets the registers up: palette 1, and of each register the bytes of a row and the number of rows."""
    rows, columns = [ROWS_OF_TILE] * TILES, [WORDS_OF_ROW * _WORD_BYTES] * TILES
    columns += [0] * (16 - TILES)
    raw = bytes([1, *[0] * 15, *b"".join(n.to_bytes(2, "little") for n in columns), *rows, *[0] * (16 - TILES)])
    text = "".join(f"\\{byte:02X}" for byte in raw)
    code.module.declarations["tile_shapes"] = f'@tile_shapes = internal constant [64 x i8] c"{text}", align 64'
    code.call("llvm.x86.ldtilecfg", "void", ("ptr", "@tile_shapes"))


def end(code: Code) -> None:
    """The registers are clear again, and cost nothing when threads are switched."""
    code.call("llvm.x86.tilerelease", "void")
