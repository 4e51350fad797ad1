"""What is measured: kernels one by one, plans beside each other, stretches of calls, and what a machine does not say of itself."""
