"""A simulated accelerator: a hardware model in JSON, and an executor of scheduled Stripe that counts cycles.

`target(**values)` expands the shipped template, `simulate(kernels, inputs)` runs a kernel list and reports.
"""

from tile_sim.design import DEFAULTS as DEFAULTS
from tile_sim.design import target as target
from tile_sim.report import Report as Report
from tile_sim.simulate import simulate as simulate
