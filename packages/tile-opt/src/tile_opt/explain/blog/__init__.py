"""The algorithms of the article "Tile to kernel", exact: flatten table, tile cost and search, read plans, thread plans, grid packing.

These are views over the kernels that the optimizer fuses (`kernel.view`); `report` prints them as the
article does.
"""

from tile_opt.explain.blog.report import BlogReport as BlogReport
from tile_opt.explain.blog.report import blog_report as blog_report
