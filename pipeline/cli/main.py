"""Command line: each command parses its arguments, makes one library call and prints the result.

Exit codes: 0 done or accepted, 1 rejected, 2 an error, 3 not enough speech or undecided, 4 done in part.
"""

from __future__ import annotations

from typing import Annotated

import typer

from pipeline import __version__
from pipeline.cli.audit import audit
from pipeline.cli.calibrate import calibrate
from pipeline.cli.compare import compare, plot
from pipeline.cli.convert import convert
from pipeline.cli.demo import demo
from pipeline.cli.enroll import enroll
from pipeline.cli.evaluate import evaluate
from pipeline.cli.identify import identify
from pipeline.cli.options import ERROR, NOT_ENOUGH_SPEECH
from pipeline.cli.record import record
from pipeline.cli.seal import seal
from pipeline.cli.serve import serve
from pipeline.cli.speakers import speakers
from pipeline.cli.terminal import print_error, print_line, separate_output
from pipeline.cli.verify import verify
from pipeline.errors import NotEnoughSpeechError, VoiceclaimError

_EXITS = "Exit codes: 0 done or accepted, 1 rejected, 2 an error, 3 not enough speech or undecided, 4 done in part."

app = typer.Typer(
    name="voiceclaim",
    help=f"Enroll speakers from audio and verify who is speaking. {_EXITS}",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    enroll,
    record,
    verify,
    identify,
    evaluate,
    calibrate,
    plot,
    compare,
    convert,
    speakers,
    demo,
    audit,
    serve,
    seal,
):
    app.command()(command)


def _print_version(wanted: bool) -> None:
    if wanted:
        print_line(f"voiceclaim {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line; print errors in one line and exit with the code of their type."""
    separate_output()
    try:
        app()
    except VoiceclaimError as error:
        print_error(error)
        raise SystemExit(NOT_ENOUGH_SPEECH if isinstance(error, NotEnoughSpeechError) else ERROR) from None
    except KeyboardInterrupt:
        print_error("interrupted")
        raise SystemExit(130) from None
