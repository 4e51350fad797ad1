# %% [markdown]
# # Gradients
#
# Every function has a derivative: another function, compiled with it.

# %%
import numpy as np
import tile_runtime as tile

cube = tile.Function("function (X) -> (Y) { Y = X * X * X; }")
x = np.linspace(-1, 1, 5, dtype=np.float32)
tile.vjp(cube, wrt="X")(x, np.ones_like(x)), 3 * x * x

# %% [markdown]
# Python functions of arrays have them, too. A circle is fitted to points:

# %%
from tile_runtime import numpy as tnp

rng = np.random.default_rng(0)
angle = rng.uniform(0, 6.28, 200)
points = np.stack([2 + 3 * np.cos(angle), -1 + 3 * np.sin(angle)], 1).astype(np.float32)
points += rng.normal(0, 0.05, points.shape).astype(np.float32)


def misfit(circle, points):
    away = points - circle["centre"]
    return ((tnp.sqrt((away * away).sum(1)) - circle["radius"]) ** 2).mean()


step = tile.value_and_grad(misfit)
circle = {"centre": np.zeros(2, np.float32), "radius": np.float32(1)}
for _ in range(200):
    value, slopes = step(circle, points)
    circle = tile.tree_map(lambda p, s: p - 0.2 * s, circle, slopes)
{name: np.round(np.asarray(found), 2) for name, found in circle.items()}

# %% [markdown]
# And so for each example of many at once, by `vmap`:

# %%
each = tile.vmap(tile.grad(misfit), in_axes=(None, 0))
each(circle, points.reshape(20, 10, 2))["radius"].shape
