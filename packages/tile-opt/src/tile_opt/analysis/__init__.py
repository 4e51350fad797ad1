"""Contraction analysis with exact integer sets: domains, injectivity, coverage."""

from tile_opt.analysis.coverage import Region as Region
from tile_opt.analysis.coverage import check_assigned_once as check_assigned_once
from tile_opt.analysis.coverage import uncovered as uncovered
from tile_opt.analysis.domain import FlatDomain as FlatDomain
from tile_opt.analysis.domain import analyze as analyze
from tile_opt.analysis.sets import Sets as Sets
from tile_opt.analysis.system import affine as affine
from tile_opt.analysis.system import poly as poly
