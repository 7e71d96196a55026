"""The forgetting meter: it measures how predictions of past rows change, without stored rows."""

from orfit.meter.meter import Meter
from orfit.meter.probes import Probes
from orfit.meter.reading import Reading, Readings

__all__ = ["Meter", "Probes", "Reading", "Readings"]
