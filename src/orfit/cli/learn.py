"""`orfit learn`: rows from files and pipes, each predicted, then learned, once."""

import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from orfit.cli import options


def learn(
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT...",
            help="Files in their order, csv, tsv, jsonl (each also .gz) or parquet; - is stdin.",
        ),
    ],
    target: Annotated[
        str | None, typer.Option(help="The column to predict; several with commas between.")
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="The file that holds everything; where it is there, learning goes on."),
    ] = None,
    every: Annotated[str, typer.Option(help="When to save: rows, 10000, or seconds, 30s.")] = "30s",
    classify: Annotated[
        bool | None, typer.Option("--classify", help="The target is a class, not a number.")
    ] = None,
    ignore: Annotated[str | None, typer.Option(help="Columns to leave out.")] = None,
    only: Annotated[str | None, typer.Option(help="Columns to learn from, and no others.")] = None,
    categories: Annotated[
        str | None, typer.Option(help="Columns that are categories, also where they hold numbers.")
    ] = None,
    width: Annotated[
        int | None, typer.Option(help="Places that a category's texts are hashed to (32).")
    ] = None,
    dates: Annotated[
        str | None,
        typer.Option(
            help="cycles: a date is its time of day, week, year; trend: and time itself (cycles)."
        ),
    ] = None,
    missing: Annotated[
        str | None,
        typer.Option(
            help="Where a value is missing or wrong: error, skip the row, or take the mean of the "
            "first rows (error)."
        ),
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(
            help="raw, poly:2, fourier:N, lags:N, or lags:N+fourier:M; auto chooses (auto)."
        ),
    ] = None,
    warmup: Annotated[
        int | None, typer.Option(help="Rows from which scales and features are chosen (1000).")
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(help="How many directions are kept, exact for RLS, or auto (auto)."),
    ] = None,
    budget: Annotated[str | None, typer.Option(help="What it may take at most (500MB).")] = None,
    noise: Annotated[
        str | None,
        typer.Option(help="The variance of the noise in a scaled target, or auto (auto)."),
    ] = None,
    tail: Annotated[
        str | None, typer.Option(help="Whether P knows what was dropped: on, off or auto (auto).")
    ] = None,
    forgetting: Annotated[
        str | None,
        typer.Option(
            help="By how much the past fades with each row; auto compares some (1: not at all)."
        ),
    ] = None,
    versus: Annotated[
        str | None, typer.Option(help="Others that learn the same rows: sgd, rls, one-step.")
    ] = None,
    holdout: Annotated[
        float | None, typer.Option(help="A share of rows that is never learned, to test on (0).")
    ] = None,
    window: Annotated[int | None, typer.Option(help="Rows that count as lately (1000).")] = None,
    probes: Annotated[
        int | None, typer.Option(help="Of the meter of what is forgotten; 0 for none (32).")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Of features, probes and rows held out (0).")
    ] = None,
    format: Annotated[
        str | None, typer.Option(help="csv, tsv, jsonl or parquet, where names do not tell.")
    ] = None,
    delimiter: Annotated[str | None, typer.Option(help="Between the values of a csv.")] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Lines of JSON on stdout, --report rows apart or more.")
    ] = False,
    report: Annotated[int, typer.Option(help="Rows between such lines.")] = 1000,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Print the result alone, and what is wrong.")
    ] = False,
) -> None:
    """Learn a stream: each row is predicted, then learned, once.

    With --checkpoint it can be stopped and killed at any time: the same command goes on from there,
    and ends with the same result, bit for bit.
    """
    from threadpoolctl import threadpool_limits

    from orfit.stream import live, tables
    from orfit.stream.block import StreamError, one_line
    from orfit.stream.run import Run, Saving

    chosen, setup = _given(locals())
    session, choice, setup_ = _settled(checkpoint, chosen, setup)
    errors = tables.console(stderr=True)
    view: Any
    if json:
        view = live.Machine(errors, max(1, report), terse=quiet)
    elif errors.is_terminal and not quiet:
        view = live.Screen(errors)
    else:
        view = live.Quiet(errors, terse=quiet)
    run = Run(inputs, view, Saving(checkpoint, **options.every(every)), format, delimiter)
    before = session.rows if session else 0
    try:
        # Matrices are small here: threads of BLAS would wait for each other more than they work.
        with threadpool_limits(1):
            session = run.learn(session, choice, setup_)
    except StreamError as error:
        if run.saved is None:
            raise
        kept = f"what came before is saved: {checkpoint} after {run.saved:,} rows"
        raise StreamError(f"{error}; {kept}") from None
    except OSError as error:
        what = f"{checkpoint or 'the input'}: {error.strerror or error}"
        told = f"{what}; a checkpoint that was there is whole"
        print(f"orfit: {one_line(told)}", file=sys.stderr)
        raise typer.Exit(1) from None
    finally:
        view.close()
    if json:
        view.report(session)
    else:
        _show(session)
        if session.rows == before:
            print(one_line(f"nothing is new: all rows of {', '.join(inputs)} were learned before"))
    if checkpoint and not quiet:
        print(f"saved: {checkpoint} after {session.rows:,} rows", file=sys.stderr)
    if run.signals.came is not None:
        name = signal.Signals(run.signals.came).name
        print(
            f"stopped by {name}" + ("; the same command goes on from there" if checkpoint else ""),
            file=sys.stderr,
        )
        raise typer.Exit(128 + run.signals.came)


def _show(session: Any) -> None:
    """The result, for people."""
    from orfit.stream import tables

    shown = tables.console()
    shown.print(tables.scores(session))
    shown.print(tables.facts_table(tables.facts(session)))
    if session.held.count:
        shown.print(tables.held(session))


def _given(values: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What was said of the columns, and of learning: only what was said."""
    chosen = {
        "targets": options.names(values["target"]),
        "ignore": options.names(values["ignore"]),
        "only": options.names(values["only"]),
        "categories": options.names(values["categories"]),
        "missing": options.word("--missing", values["missing"], "error", "skip", "mean"),
        "classify": values["classify"],
        "width": values["width"],
        "trend": options.word("--dates", values["dates"], "cycles", "trend") == "trend"
        if values["dates"] is not None
        else None,
    }
    setup = {
        "features": values["features"],
        "memory": options.directions(values["memory"]),
        "budget": options.size(values["budget"]),
        "noise": options.number_or("--noise", values["noise"], "auto"),
        "tail": options.switch(values["tail"]),
        "forgetting": options.number_or("--forgetting", values["forgetting"], "auto"),
        "versus": options.names(values["versus"]),
    }
    setup |= {name: values[name] for name in ("holdout", "window", "probes", "warmup", "seed")}
    said = [{n: v for n, v in part.items() if v is not None} for part in (chosen, setup)]
    return said[0], said[1]


def _settled(checkpoint: Path | None, chosen: dict[str, Any], given: dict[str, Any]) -> Any:
    """The session of the checkpoint, if there is one, and the settings: its own, or as given."""
    from orfit.stream import saved
    from orfit.stream.block import StreamError
    from orfit.stream.encoding import Choice
    from orfit.stream.setup import Setup

    if checkpoint is not None and checkpoint.exists():
        session = saved.load(checkpoint)
        encoding = session.encoding
        if "missing" in chosen:  # of rows to come: what was learned stays as it is
            encoding.choice = replace(encoding.choice, missing=chosen["missing"])
        for part, said in ((encoding.choice, chosen), (session.options, given)):
            for name, value in said.items():
                was = getattr(part, name)
                if value != was:
                    option = "target" if name == "targets" else name
                    raise StreamError(
                        f"{checkpoint} was begun with --{option} {_shown(was)}, not "
                        f"{_shown(value)}: leave it away to go on, or name another checkpoint"
                    )
        return session, encoding.choice, session.options
    if "targets" not in chosen:
        raise StreamError("--target must name the column to predict")
    choice, setup = Choice(**chosen), Setup(**given)
    setup.check()
    choice.check()
    return None, choice, setup


def _shown(value: Any) -> str:
    return ",".join(value) if isinstance(value, tuple) else str(value)
