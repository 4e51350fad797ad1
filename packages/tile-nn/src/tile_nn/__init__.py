"""Neural networks in Tile: layers, losses and optimisers as plain functions of trees of tensors.

    import tile_nn as nn
    import tile_runtime as tile

    def loss(params, x, labels):
        return nn.cross_entropy(nn.dense(params, x), labels).mean()

    params = nn.init.dense(tile.key(0), 64, 10)
    step = nn.training_step(loss, optimizer := nn.adam(1e-3))
    state = optimizer.init(params)
    params, state, value = step(params, state, x, labels)

Parameters are dicts of arrays that `tile_nn.init` makes; a layer takes them and its input. There are no classes to derive
from and nothing is hidden: what a network is, is a function that calls these.
"""

from tile_nn import init
from tile_nn.checkpoints import load, save
from tile_nn.data import batches
from tile_nn.layers import (
    attention,
    batch_norm,
    conv,
    dense,
    dropout,
    embedding,
    group_norm,
    layer_norm,
    max_pool,
    mean_pool,
    rms_norm,
    self_attention,
)
from tile_nn.losses import accuracy, binary_cross_entropy, cross_entropy, huber, squared_error
from tile_nn.optimizers import Optimizer, adam, adamw, clipped, sgd
from tile_nn.progress import progress
from tile_nn.schedules import cosine, exponential, linear, piecewise, warmup
from tile_nn.training import training_step

__version__ = "0.1.0"

__all__ = [
    "Optimizer",
    "accuracy",
    "adam",
    "adamw",
    "attention",
    "batch_norm",
    "batches",
    "binary_cross_entropy",
    "clipped",
    "conv",
    "cosine",
    "cross_entropy",
    "dense",
    "dropout",
    "embedding",
    "exponential",
    "group_norm",
    "huber",
    "init",
    "layer_norm",
    "linear",
    "load",
    "max_pool",
    "mean_pool",
    "piecewise",
    "progress",
    "rms_norm",
    "save",
    "self_attention",
    "sgd",
    "squared_error",
    "training_step",
    "warmup",
]
