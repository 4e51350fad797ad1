# %% [markdown]
# # Pictures
#
# Stencils on a drawn picture: a blur, edges, and what lies beyond the border.

# %%
import numpy as np
import tile_runtime as tile
from IPython.display import display
from PIL import Image

y, x = np.mgrid[:160, :240].astype(np.float32)
picture = ((x // 24 + y // 24) % 2) * 0.6 + 0.4 * (np.hypot(x - 120, y - 80) < 60).astype(np.float32)


def show(array):
    display(Image.fromarray((255 * np.clip(array, 0, 1)).astype(np.uint8)))


show(picture)

# %% [markdown]
# A border word around a subscript says what is beyond the edges; `clamp` repeats the outermost cells.

# %%
blurred = tile.Function("""
function (P[H, W]) -> (B) {
    A[y, x : H, W] = +(P[y, clamp(x + k - 4)]), k < 9;
    S[y, x : H, W] = +(A[clamp(y + k - 4), x]), k < 9;
    B = S / 81;
}""")(picture)
show(blurred)

# %%
edges = tile.Function("""
function (P[H, W]) -> (E) {
    R[y, x : H, W] = =(P[y, clamp(x + 1)]);
    D[y, x : H, W] = =(P[clamp(y + 1), x]);
    E = 4 * sqrt((R - P) * (R - P) + (D - P) * (D - P));
}""")
show(edges(blurred))

# %% [markdown]
# Composed, both are one program, and kernels are shared.

# %%
p = tile.placeholder("float32", picture.shape, "p")
both = tile.compose([p], [edges(edges(p))])
len(both.lower(picture).kernels.kernels)
