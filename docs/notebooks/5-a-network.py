# %% [markdown]
# # A network
#
# Two spirals are told apart by a small perceptron: layers and optimisers are plain functions of trees of tensors.

# %%
import numpy as np
import tile_nn as nn
import tile_runtime as tile
from tile_runtime import numpy as tnp

rng = np.random.default_rng(0)
turn = rng.uniform(0.5, 3, 400)
labels = (np.arange(400) % 2).astype(np.int32)
angle = 2 * turn + np.pi * labels
points = (np.stack([turn * np.cos(angle), turn * np.sin(angle)], 1) / 3).astype(np.float32)


def network(params, x):
    x = tnp.tanh(nn.dense(params["first"], x))
    x = tnp.tanh(nn.dense(params["second"], x))
    return nn.dense(params["out"], x)


def loss(params, x, labels):
    return nn.cross_entropy(network(params, x), labels).mean()


first, second, third = tile.random.split(tile.key(0), 3)
params = {
    "first": nn.init.dense(first, 2, 32),
    "second": nn.init.dense(second, 32, 32),
    "out": nn.init.dense(third, 32, 2),
}
optimizer = nn.adam(0.01)
state, step = optimizer.init(params), nn.training_step(loss, optimizer)
for _ in range(300):
    params, state, value = step(params, state, points, labels)
float(value)

# %% [markdown]
# What it has learnt, as a picture: the network's answer over the whole plane.

# %%
from IPython.display import display
from PIL import Image

line = np.linspace(-1, 1, 128, dtype=np.float32)
plane = np.stack(np.meshgrid(line, line), -1).reshape(-1, 2)
answer = np.asarray(tile.jit(network)(params, plane))
display(Image.fromarray((255 * (answer[:, 0] > answer[:, 1])).astype(np.uint8).reshape(128, 128)).resize((256, 256)))
