"""Gradients of Tile programs, and programs of many at once, Program to Program."""

from tile_autodiff._batch import batched
from tile_autodiff._products import hessian_vector_product, jvp
from tile_autodiff._reverse import gradient, value_and_gradient
from tile_autodiff._tile import to_tile

__all__ = ["batched", "gradient", "hessian_vector_product", "jvp", "to_tile", "value_and_gradient"]
