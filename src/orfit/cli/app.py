"""The tree of commands, and what becomes of errors."""

import os
import sys
from typing import Annotated

import typer

import orfit
from orfit.cli import inspect, learn, predict, report, reproduce
from orfit.stream.block import one_line

app = typer.Typer(
    name="orfit",
    help="Learn from a stream in one pass, without forgetting.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command("learn")(learn.learn)
app.command("predict")(predict.predict)
app.command("inspect")(inspect.inspect)
app.command("report")(report.report)
app.command("reproduce")(reproduce.reproduce)


def _version(asked: bool) -> None:
    if asked:
        print(f"orfit {orfit.__version__}")
        raise typer.Exit


@app.callback()
def orfit_command(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say it, and exit.")
    ] = False,
) -> None:
    """Learn from a stream in one pass, without forgetting."""


def run(arguments: list[str]) -> int:
    """The exit code of a command."""
    try:
        app(arguments, prog_name="orfit")
    except SystemExit as ended:  # as every command does; a slip in the options is told by then
        return int(ended.code or 0)
    except BrokenPipeError:  # who reads has gone, as head does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (ValueError, LookupError, OSError) as error:
        print(f"orfit: {one_line(str(error))}", file=sys.stderr)
        return 2
    return 0
