"""Random numbers from keys: the same key gives the same numbers, on every device and with any number of threads.

    import tile_runtime as tile

    key, other = tile.random.split(tile.key(0))
    noise = tile.random.normal(key, (3, 4))

A key is two words of 32 bits (uint32[2], a Tensor or a Symbol). Nothing is drawn from a state: whoever needs other numbers
splits the key, or folds a number into it. Everything works on symbols, too, and under `tile.vmap`. The generator is
Threefry-2x32, a function of key and place; keys, splits and bits are those of ``jax.random``. What logarithms and cosines
enter (`normal`, `exponential`, `categorical`) agrees between devices up to their last bits.
"""

from tile_runtime.random.keys import bits, fold_in, key, split
from tile_runtime.random.sampling import bernoulli, categorical, exponential, normal, permutation, randint, uniform

__all__ = [
    "bernoulli",
    "bits",
    "categorical",
    "exponential",
    "fold_in",
    "key",
    "normal",
    "permutation",
    "randint",
    "split",
    "uniform",
]
