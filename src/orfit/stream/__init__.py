"""Rows from files and pipes, learned by name: what `orfit learn` does, one idea a file."""
