"""The forgetting meter: what became of all that was ever learned, without keeping a row of it."""

from orfit.meter.meter import Meter
from orfit.meter.probes import Probes
from orfit.meter.reading import Reading, Readings

__all__ = ["Meter", "Probes", "Reading", "Readings"]
