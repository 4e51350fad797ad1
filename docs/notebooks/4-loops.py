# %% [markdown]
# # Loops on the device
#
# Heat spreads over a plate: five hundred steps are one program, and so is the gradient through them.

# %%
import numpy as np
import tile_runtime as tile
from IPython.display import display
from PIL import Image

step = tile.Function("""
function (U[N, M]) -> (V) {
    S[i, j : N, M] = +(U[i + a - 1, j + b - 1]), a < 3, b < 3, a + b - 1 < 3, a - b + 1 < 3;
    V = U + 0.2 * (S - 5 * U);
}""")
side = 96
u = tile.placeholder("float32", (side, side), "u")
spread = tile.compose([u], {"after": tile.repeat(step, u, 500, checkpoint=25)})

start = np.zeros((side, side), np.float32)
start[20:30, 20:30], start[60:64, 40:80] = 1, 1
after = spread(start)


def show(a):
    display(Image.fromarray((255 * a / a.max()).astype(np.uint8)).resize((192, 192)))


show(start)
show(after)

# %% [markdown]
# How warm one corner gets, and where warmth would have to be put to make it warmer: the derivative of one cell by the whole plate at the start.

# %%
pull = tile.vjp(spread, wrt="u")
place = np.zeros_like(start)
place[48, 48] = 1
show(pull(start, place))
