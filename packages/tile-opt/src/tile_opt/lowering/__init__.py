"""Mechanical lowering of Stripe to kernel lists."""
