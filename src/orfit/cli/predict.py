"""`orfit predict`: what a learned stream predicts of other rows."""

import csv
import sys
from pathlib import Path
from typing import Annotated

import numpy as np
import typer


def predict(
    checkpoint: Annotated[Path, typer.Argument(help="What `orfit learn` has saved.")],
    inputs: Annotated[list[str], typer.Argument(metavar="INPUT...", help="Rows; - is stdin.")],
    format: Annotated[
        str | None, typer.Option(help="csv, tsv, jsonl or parquet, where names do not tell.")
    ] = None,
    delimiter: Annotated[str | None, typer.Option(help="Between the values of a csv.")] = None,
) -> None:
    """Predict rows, a line of csv for each, and change nothing.

    Numbers come with their standard deviation and the ends of a 95 % interval, classes with their
    score. A row that --missing skip would leave out gets an empty line of values; where
    --missing mean fills in a value, the interval is wider by what it might have been.
    """
    from orfit.stream import saved
    from orfit.stream.forecast import Forecast
    from orfit.stream.run import Reading
    from orfit.stream.session import SIGMAS
    from orfit.stream.source import Source

    session = saved.load(checkpoint)
    forecast = Forecast(session)
    writer = csv.writer(sys.stdout, lineterminator="\n")
    targets = session.encoding.choice.targets
    classes = session.encoding.target.classes
    head = [f"{name}{end}" for name in targets for end in ("", "_std", "_low", "_high")]
    if classes is not None:
        head = [targets[0], "score"]
    for path in inputs:
        reading = Reading(0, None, live=True)
        for block in Source.of([path], format, delimiter).blocks():
            reading.blocks.append(block)
            for part in (part for each in reading.parts(session) for part in each.blocks):
                found = forecast.predict(part)
                lines = np.full((len(part), len(targets) * 4), "", object)
                if classes is not None:
                    best = np.argmax(found.made, axis=1)
                    lines = lines[:, :2]
                    lines[found.rows, 0] = [classes[i] for i in best]
                    lines[found.rows, 1] = [repr(float(v)) for v in found.made.max(axis=1)]
                else:
                    spread = SIGMAS * found.std
                    told = (found.made, found.std, found.made - spread, found.made + spread)
                    for i, numbers in enumerate(told):
                        lines[found.rows, i::4] = [
                            [repr(v) for v in row] for row in numbers.tolist()
                        ]
                if head:  # once there is something to say below it
                    writer.writerow(head)
                    head = []
                writer.writerows(lines.tolist())
            sys.stdout.flush()  # rows of a pipe are answered as they come
