"""Learners: a model, a memory, and the rule by which they change."""
