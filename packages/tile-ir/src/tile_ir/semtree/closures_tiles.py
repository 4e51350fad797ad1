"""Closures of the instructions on tile registers (see `tile_ir.semtree.closures` and `tile_ir.matrix.x86`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tile_ir.matrix.x86 import FETCHES, LOAD_TILE, PRODUCTS, ROWS_OF_TILE, WORDS_OF_ROW, ZERO_TILE, tile_product
from tile_ir.semtree.closures_memory import Evaluate, Frame, Run
from tile_ir.semtree.errors import SemtreeRuntimeError
from tile_ir.semtree.memory import Memory, Thread
from tile_ir.semtree.nodes import TileStep


def step(node: TileStep, args: Sequence[Evaluate]) -> Run:
    """What the instruction does to the work item's registers, or to memory."""
    if node.name in PRODUCTS:
        return _product(node)
    if node.name == ZERO_TILE:
        return _zero(node.tiles[0])
    if node.name in FETCHES:
        return _nothing
    return _load(node, args) if node.name == LOAD_TILE else _store(node, args)


def _nothing(_: Frame) -> None:
    """Asking for a line changes nothing, wherever it is."""


def _product(node: TileStep) -> Run:
    def run(f: Frame) -> None:
        c, a, b = (_held(f[0], tile) for tile in node.tiles)
        f[0].tiles[node.tiles[0]] = tile_product(node.name, c, a, b)

    return run


def _zero(tile: int) -> Run:
    """Zeros are zeros in every dtype."""

    def run(f: Frame) -> None:
        f[0].tiles[tile] = np.zeros((ROWS_OF_TILE, WORDS_OF_ROW), np.int32)

    return run


def _load(node: TileStep, args: Sequence[Evaluate]) -> Run:
    pointer, index = args

    def run(f: Frame) -> None:
        memory: Memory = pointer(f)
        rows: list[Any] = []
        for row in range(ROWS_OF_TILE):
            at = memory.locate(index(f) + row * node.pitch, WORDS_OF_ROW, None, f[0], "read")
            memory.on_read(at, f[0])
            rows.append(memory.data[at[0] : at[-1] + 1])
        f[0].tiles[node.tiles[0]] = np.stack(rows)

    return run


def _store(node: TileStep, args: Sequence[Evaluate]) -> Run:
    pointer, index = args

    def run(f: Frame) -> None:
        memory: Memory = pointer(f)
        for row, values in enumerate(_held(f[0], node.tiles[0])):
            at = memory.locate(index(f) + row * node.pitch, WORDS_OF_ROW, None, f[0], "write")
            memory.on_write(at, f[0])
            memory.data[at[0] : at[-1] + 1] = values

    return run


def _held(thread: Thread, tile: int) -> Any:
    if tile not in thread.tiles:
        raise SemtreeRuntimeError(f"tile register {tile} is read, which {thread} has not filled")
    return thread.tiles[tile]
