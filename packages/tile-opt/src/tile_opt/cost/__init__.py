"""Cost models: from a kernel and hardware settings to the sizes a schedule uses."""
