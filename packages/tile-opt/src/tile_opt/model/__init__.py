"""What a schedule costs on a machine."""
