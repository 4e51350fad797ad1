"""What computing a box of a result takes: the exact boxes that it reads, through all operations, and its program.

A rule for each kind of operation says which cells a box of its result needs, and writes the operation for that box alone;
a `Walker` follows them from a result back to the arrays. Partitions cut programs into tasks over chunks of arrays so, and
rewrites cut stencils into interiors and borders.
"""

from __future__ import annotations

from tile_opt.regions.boxes import Box as Box
from tile_opt.regions.contraction import ContractionRule as ContractionRule
from tile_opt.regions.operations import rule_of as rule_of
from tile_opt.regions.region import Walker as Walker
from tile_opt.regions.region import Walks as Walks
from tile_opt.regions.rules import Rule as Rule

__all__ = ["Box", "ContractionRule", "Rule", "Walker", "Walks", "rule_of"]
