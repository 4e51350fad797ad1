"""The rule of an operation: which kind of rule, for each kind of operation."""

from __future__ import annotations

from collections.abc import Mapping

from tile_ir.program.nodes import Argsort, Contraction, Elementwise, Gather, IndexOf, Op, Reshape, Scatter, TensorType

from tile_opt.analysis import Sets, analyze
from tile_opt.regions.contraction import ContractionRule
from tile_opt.regions.pointwise import ArgsortRule, ElementwiseRule, GatherRule, IndexRule
from tile_opt.regions.reshape import ReshapeRule
from tile_opt.regions.rules import Rule
from tile_opt.regions.scatter import ScatterRule


def rule_of(op: Op, types: Mapping[str, TensorType], sets: Sets, reduced: tuple[str, ...] = ()) -> Rule:
    """How boxes of an operation's result are computed; boxes may cut the indexes `reduced` of an aggregation, too."""
    match op:
        case Elementwise():
            return ElementwiseRule(op, types)
        case Contraction():
            return ContractionRule(op, analyze(op, sets), sets, reduced)
        case Gather():
            return GatherRule(op, types)
        case Reshape():
            return ReshapeRule(op, types[op.arg].shape)
        case Scatter():
            return ScatterRule(op, types, reduced)
        case Argsort():
            return ArgsortRule(op, types)
        case IndexOf():
            return IndexRule(op)
        case _:
            raise AssertionError(type(op).__name__)
