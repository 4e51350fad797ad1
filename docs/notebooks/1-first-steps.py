# %% [markdown]
# # First steps
#
# A function in Tile, called with NumPy arrays, and what the compiler made of it.

# %%
import numpy as np
import tile_runtime as tile

matmul = tile.Function("""
function (A[M, L], B[L, N]) -> (C) {
    C[i, j : M, N] = +(A[i, k] * B[k, j]);
}""")
a, b = np.random.default_rng(0).random((2, 300, 300), np.float32)
np.allclose(matmul(a, b), a @ b, rtol=1e-4)

# %% [markdown]
# Indexes that the left side does not name are summed over, wherever every subscript is inside its tensor. So a border needs no care:

# %%
blur = tile.Function("function (X[N]) -> (Y) { Y[i : N] = +(X[i + k - 1]), k < 3; }")
blur(np.array([3, 1, 4, 1, 5], np.float32))

# %% [markdown]
# `lower` has every stage of a compilation; this is the plan of the product's only kernel.

# %%
print(matmul.lower(a, b).plans)

# %% [markdown]
# A mistake is a sentence with a place.

# %%
try:
    matmul(a, b[:7])
except tile.TileError as error:
    print(error)
