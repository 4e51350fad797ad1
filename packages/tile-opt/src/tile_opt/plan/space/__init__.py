"""Legal plans of a kernel on a machine, best first and few."""
