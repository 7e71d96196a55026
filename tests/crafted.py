"""Read the parts of a checkpoint, and write changed parts with a right checksum."""

import json

import numpy as np
import safetensors
import safetensors.numpy

from orfit.checkpoint import KEY, Content


def parts(path):
    """The header and the arrays of a file."""
    with safetensors.safe_open(path, framework="numpy") as file:
        arrays = {name: np.array(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118
        header = json.loads(file.metadata()[KEY])
    del header["checksum"]
    return header, arrays


def write(path, text, arrays):
    """Write a file with this header, these arrays, and their checksum."""
    arrays = {name: np.array(array, order="C") for name, array in arrays.items()}
    safetensors.numpy.save_file(arrays, path, {KEY: Content(arrays, text).sealed})
