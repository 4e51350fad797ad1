"""What AOTAutograd made of a captured graph, kept on disk, so that the next process need not trace it again.

A kept trace runs inside AOTAutograd's own wrappers, which are others in each version of PyTorch: with versions that
are not known here everything works, but nothing is kept.
"""

from __future__ import annotations

import torch

KNOWN = ("2.13", "2.14", "2.15")
"""Versions of PyTorch whose wrappers `store` knows."""


def unkept() -> str | None:
    """Why this process keeps no traces, as a sentence; None where it does."""
    if torch.__version__.startswith(tuple(f"{v}." for v in KNOWN)):
        return None
    return f"What PyTorch traced is not kept on disk: that needs PyTorch {', '.join(KNOWN)}, and this is {torch.__version__}."
