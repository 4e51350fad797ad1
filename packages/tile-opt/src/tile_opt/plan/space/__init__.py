"""Which plans are worth a look, by kind of machine and kernel."""
