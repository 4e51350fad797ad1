"""Nested blocks of Stripe: walking, splitting, swapping, and where buffers live."""
