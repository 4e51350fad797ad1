"""Dimension numbers: which axes of a product, a convolution, a gather or a scatter mean what."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, TypeVar

from tile_jax.lowering.mlir import stablehlo

Axes = tuple[int, ...]
_Numbers = TypeVar("_Numbers")


def _read(form: type[_Numbers], found: Any) -> _Numbers:
    """The fields of `form`, which are named as MLIR names them: numbers, and lists of them."""
    values: list[Any] = [getattr(found, field.name) for field in fields(form)]  # pyright: ignore[reportArgumentType]
    return form(*(v if isinstance(v, int) else tuple(v) for v in values))


@dataclass(frozen=True, slots=True)
class DotNumbers:
    lhs_batching_dimensions: Axes
    rhs_batching_dimensions: Axes
    lhs_contracting_dimensions: Axes
    rhs_contracting_dimensions: Axes


@dataclass(frozen=True, slots=True)
class ConvNumbers:
    input_batch_dimension: int
    input_feature_dimension: int
    input_spatial_dimensions: Axes
    kernel_input_feature_dimension: int
    kernel_output_feature_dimension: int
    kernel_spatial_dimensions: Axes
    output_batch_dimension: int
    output_feature_dimension: int
    output_spatial_dimensions: Axes


@dataclass(frozen=True, slots=True)
class GatherNumbers:
    offset_dims: Axes
    collapsed_slice_dims: Axes
    operand_batching_dims: Axes
    start_indices_batching_dims: Axes
    start_index_map: Axes
    index_vector_dim: int


@dataclass(frozen=True, slots=True)
class ScatterNumbers:
    update_window_dims: Axes
    inserted_window_dims: Axes
    input_batching_dims: Axes
    scatter_indices_batching_dims: Axes
    scattered_dims_to_operand_dims: Axes
    index_vector_dim: int


def dot_numbers(attribute: Any) -> DotNumbers:
    return _read(DotNumbers, stablehlo.DotDimensionNumbers(attribute))


def conv_numbers(attribute: Any) -> ConvNumbers:
    return _read(ConvNumbers, stablehlo.ConvDimensionNumbers(attribute))


def gather_numbers(attribute: Any) -> GatherNumbers:
    return _read(GatherNumbers, stablehlo.GatherDimensionNumbers(attribute))


def scatter_numbers(attribute: Any) -> ScatterNumbers:
    return _read(ScatterNumbers, stablehlo.ScatterDimensionNumbers(attribute))
