"""What is kept of the past.

Examples:
    >>> learner = orfit.ORFit(orfit.Linear(100), orfit.memory.Latest(5))
    >>> learner.memory.m
    5
"""

from orfit.memory.base import Memory
from orfit.memory.basis import Basis, Bounded
from orfit.memory.dense import Dense
from orfit.memory.frequent import FrequentDirections
from orfit.memory.growing import Growing
from orfit.memory.latest import Latest
from orfit.memory.nothing import Nothing
from orfit.memory.principal import Principal
from orfit.memory.random import Random
from orfit.memory.sketch import Sketch
from orfit.memory.unlimited import Unlimited

__all__ = [
    "Basis",
    "Bounded",
    "Dense",
    "FrequentDirections",
    "Growing",
    "Latest",
    "Memory",
    "Nothing",
    "Principal",
    "Random",
    "Sketch",
    "Unlimited",
]
