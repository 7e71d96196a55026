"""Kalman filtering: dynamics, drift, missing labels."""
