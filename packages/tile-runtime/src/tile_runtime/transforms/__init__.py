"""Functions made of functions: gradients, derivatives of a user's own, and one more axis."""
