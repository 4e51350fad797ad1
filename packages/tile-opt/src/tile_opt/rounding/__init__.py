"""Certified bounds on rounding errors: running error analysis over the actual tree of partial sums of a schedule."""

from tile_opt.rounding.bound import Bound as Bound
from tile_opt.rounding.bound import Relation as Relation
from tile_opt.rounding.run import error_bounds as error_bounds
