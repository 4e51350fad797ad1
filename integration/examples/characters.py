"""A transformer that learns to write like Python's own documentation, character by character.

    python integration/examples/characters.py [--device llvm] [--steps 600] [--size 64] [--write 200]

The text is what `help()` shows, which comes with Python. Forward pass, backward pass and Adam are one program. Exit code 0
when the loss falls below that of guessing by frequency, otherwise 1.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np
import tile_nn as nn
import tile_runtime as tile
from rich.console import Console
from tile_runtime import numpy as tnp

LENGTH, BATCH, HEADS, BLOCKS = 64, 16, 4, 2
console = Console(highlight=False)


# --- the network: all of it --------------------------------------------------------------------------------


def parameters(key: Any, count: int, length: int, size: int, blocks: int) -> dict[str, Any]:
    """Of a transformer for `count` characters, `length` of them at most."""
    keys = tile.random.split(key, blocks + 3)
    return {
        "characters": nn.init.embedding(keys[0], count, size, scale=0.1),
        "places": nn.init.embedding(keys[1], length, size, scale=0.1),
        "blocks": [block_parameters(k, size) for k in keys[3:]],
        "norm": nn.init.norm(size, device=key.device),
        "out": nn.init.dense(keys[2], size, count),
    }


def block_parameters(key: Any, size: int) -> dict[str, Any]:
    first, second, third = tile.random.split(key, 3)
    return {
        "attention": nn.init.self_attention(first, size),
        "wide": nn.init.dense(second, size, 4 * size),
        "narrow": nn.init.dense(third, 4 * size, size),
        "norms": [nn.init.norm(size, device=key.device) for _ in range(2)],
    }


def block(params: Any, x: Any, heads: int) -> Any:
    x = x + nn.self_attention(params["attention"], nn.layer_norm(params["norms"][0], x), heads, causal=True)
    hidden = tnp.gelu(nn.dense(params["wide"], nn.layer_norm(params["norms"][1], x)))
    return x + nn.dense(params["narrow"], hidden)


def logits(params: Any, text: Any, heads: int = HEADS) -> Any:
    """[N, length] of characters to [N, length, count]: what may come next."""
    x = nn.embedding(params["characters"], text) + params["places"]["table"][: text.shape[1]]
    for part in params["blocks"]:
        x = block(part, x, heads)
    return nn.dense(params["out"], nn.layer_norm(params["norm"], x))


def loss(params: Any, text: Any) -> Any:
    return nn.cross_entropy(logits(params, text[:, :-1]), text[:, 1:]).mean()


# --- text ---------------------------------------------------------------------------------------------------


def documentation() -> tuple[np.ndarray[Any, Any], str]:
    """Python's help texts as numbers of characters, and the alphabet."""
    from pydoc_data.topics import topics

    text = "".join(topics.values())
    alphabet = "".join(sorted({c for c in text if c.isascii()}))
    number = {c: k for k, c in enumerate(alphabet)}
    return np.array([number[c] for c in text if c in number], np.int32), alphabet


def written(params: Any, start: np.ndarray[Any, Any], count: int) -> np.ndarray[Any, Any]:
    """`start`, LENGTH characters, and `count` more that the network draws: a loop on the device."""

    def step(window: Any, key: Any) -> tuple[Any, Any]:
        drawn = tile.random.categorical(key, logits(params, window[None])[0, -1] / 0.7)
        return tnp.concat([window[1:], drawn.reshape(1)]), drawn

    drawn = tile.jit(lambda window, keys: tile.scan(step, window, keys)[1])
    return np.concatenate([start, drawn(start, np.asarray(tile.random.split(tile.key(1), count)))])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", help="a device id such as llvm or opencl:0 (default: the best there is)")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--size", type=int, default=64, help="numbers for each character")
    parser.add_argument("--write", type=int, default=200, help="characters to write in the end")
    options = parser.parse_args(arguments)
    device = tile.device(options.device)
    text, alphabet = documentation()
    shares = np.bincount(text, minlength=len(alphabet)) / len(text)
    guessing = float(-(shares[shares > 0] * np.log(shares[shares > 0])).sum())
    params = parameters(tile.key(0, device), len(alphabet), LENGTH, options.size, BLOCKS)
    optimizer = nn.clipped(nn.adamw(nn.warmup(20, nn.cosine(4e-3, options.steps))), 1.0)
    state, step = optimizer.init(params), nn.training_step(loss, optimizer)
    rng, value = np.random.default_rng(0), np.float32(np.inf)
    for _ in (bar := nn.progress(range(options.steps), "reading")):
        starts = rng.integers(0, len(text) - LENGTH - 1, (BATCH, 1))
        params, state, value = step(params, state, text[starts + np.arange(LENGTH + 1)])
        bar.show(loss=value)
    console.print(
        f"{len(text)} characters, {options.steps} steps: loss {float(value):.3f}, guessing has {guessing:.3f}"
    )
    if options.write:
        console.print("".join(alphabet[k] for k in written(params, text[:LENGTH], options.write)), markup=False)
    return 0 if float(value) < guessing else 1


if __name__ == "__main__":
    raise SystemExit(main())
