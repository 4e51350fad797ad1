"""Translation of bound programs to unscheduled Stripe (see `to_stripe`)."""

from tile_opt.translate.program import to_stripe as to_stripe
