"""One contraction on a graphics processor, exact: flatten table, tile cost and search, read plans, thread plans, grid packing.

These are views over the kernels that the optimizer fuses (`kernel.view`); `report` prints them as the
article does.
"""

from tile_opt.explain.contraction.report import ContractionReport as ContractionReport
from tile_opt.explain.contraction.report import contraction_report as contraction_report
