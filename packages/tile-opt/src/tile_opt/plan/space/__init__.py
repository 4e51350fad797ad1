"""Plans worth trying, best first, for each kind of machine."""
