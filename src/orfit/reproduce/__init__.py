"""The experiments of the paper: its figures, its numbers, its baselines."""
