"""Stripe: data model, text form, verifier and interpreter."""
