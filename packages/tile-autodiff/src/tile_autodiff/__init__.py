"""Gradients of Tile programs, Program to Program."""

from tile_autodiff._products import hessian_vector_product, jvp
from tile_autodiff._reverse import gradient
from tile_autodiff._tile import to_tile

__all__ = ["gradient", "hessian_vector_product", "jvp", "to_tile"]
