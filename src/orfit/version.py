"""The version, written once: the package and the build read it here."""

__version__ = "0.2.0"
