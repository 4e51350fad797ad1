# %% [markdown]
# # Looking inside
#
# What the compiler decided, what it costs, and how to decide otherwise.

# %%
import numpy as np
import tile_runtime as tile

matmul = tile.Function("function (A[M, L], B[L, N]) -> (C) { C[i, j : M, N] = +(A[i, k] * B[k, j]); }", name="matmul")
a, b = np.random.default_rng(0).random((2, 256, 256), np.float32)
lowered = matmul.lower(a, b, device="llvm")
print(lowered.plans)

# %% [markdown]
# A plan is text. Narrower vectors, given back:

# %%
text = str(lowered.plans)
mine = tile.Evaluator("llvm", plans=text.replace("vector j:1 x16", "vector j:1 x8"))
np.allclose(mine(matmul, a, b), a @ b, rtol=1e-4)

# %% [markdown]
# What the cost model says of the kernel, and how long its calls took:

# %%
(kernel,) = lowered.report().kernels
print(kernel.roofline.bound, [(cause.name, f"{cause.seconds * 1e6:.1f} µs") for cause in kernel.plan.prediction.causes])
with tile.profile() as profile:
    matmul(a, b, device="llvm")
print(profile)

# %% [markdown]
# The last stage is machine code.

# %%
print("\n".join(lowered.asm.splitlines()[:12]))
