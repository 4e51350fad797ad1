"""The devices that need no hardware: `interp` runs kernels by the interpreter, `null` only compiles."""
