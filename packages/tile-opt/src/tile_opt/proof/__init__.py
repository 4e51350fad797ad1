"""Schedules proved: that a scheduled program means what the unscheduled one says, for every cell and every product.

`prove` gives a `Report`. Each claim is decided by ISL at once or, where that takes too many operations, by a process
that can be given up after TILE_ANALYSIS_SECONDS; then it counts as not proved.
"""

from tile_opt.proof.report import Finding as Finding
from tile_opt.proof.report import Report as Report
from tile_opt.proof.report import Verdict as Verdict
from tile_opt.proof.run import ProofError as ProofError
from tile_opt.proof.run import ProofWarning as ProofWarning
from tile_opt.proof.run import check as check
from tile_opt.proof.run import check_steps as check_steps
from tile_opt.proof.run import prove as prove
from tile_opt.proof.run import prove_steps as prove_steps
