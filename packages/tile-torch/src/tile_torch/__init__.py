"""PyTorch models on any Tile device.

    compiled = torch.compile(model, backend="tile")       # options={"device": "opencl:0", "fallback": "eager"}

Installing this package is enough: PyTorch finds the backend by its entry point.
"""

from __future__ import annotations

__version__ = "0.1.0"
