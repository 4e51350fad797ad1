"""Semtree rewriting after lowering: simplification and legalisation."""

from __future__ import annotations

from tile_opt.semtree.join_stores import join_stores
from tile_opt.semtree.legalise import VECTOR_NODES, LegaliseError, legalise
from tile_opt.semtree.simplify import simplify

__all__ = ["VECTOR_NODES", "LegaliseError", "join_stores", "legalise", "simplify"]
