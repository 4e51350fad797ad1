"""The search space: legal plans of a kernel on a target, best first and few. `facts.py` has what every kind of machine asks of a kernel."""
