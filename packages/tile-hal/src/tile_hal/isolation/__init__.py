"""Devices in processes of their own: a driver that crashes or hangs takes its worker with it, and nothing else."""
