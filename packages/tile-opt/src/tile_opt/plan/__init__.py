"""Schedules as data, and the blocks that are built from them."""
