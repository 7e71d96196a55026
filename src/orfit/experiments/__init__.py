"""What the paper shows, and what is shown beyond it."""
