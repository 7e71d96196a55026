"""The one place that knows it: the package reads it here, and so does the build."""

__version__ = "0.2.0"
