"""The command line: each command parses its arguments, makes one library call and prints what came of it.

Exit codes: 0 done or accepted, 1 rejected, 2 an error, 3 not enough speech, or undecided.
"""

from __future__ import annotations

from typing import NoReturn

import typer

from pipeline.commands.audit import audit
from pipeline.commands.convert import convert
from pipeline.commands.demo import demo
from pipeline.commands.enroll import enroll
from pipeline.commands.evaluate import compare, evaluate, plot
from pipeline.commands.record import record
from pipeline.commands.seal import seal
from pipeline.commands.serve import serve
from pipeline.commands.shared import Exit
from pipeline.commands.speakers import speakers
from pipeline.commands.verify import verify
from pipeline.errors import NotEnoughSpeechError, VoiceclaimError
from pipeline.reproduce.command import reproduce
from pipeline.terminal import complain, own_output

_EXITS = "Exit codes: 0 done or accepted, 1 rejected, 2 an error, 3 not enough speech, or undecided."

app = typer.Typer(
    name="voiceclaim",
    help=f"Enroll speakers from audio and verify who is speaking. {_EXITS}",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for command in (
    enroll,
    record,
    verify,
    evaluate,
    plot,
    compare,
    convert,
    speakers,
    demo,
    reproduce,
    audit,
    serve,
    seal,
):
    app.command()(command)


def main() -> None:
    """Run the command line, errors told in one line and a typed exit code."""
    own_output()
    try:
        app()
    except NotEnoughSpeechError as error:
        _fail(error, Exit.NOT_ENOUGH_SPEECH)
    except VoiceclaimError as error:
        _fail(error, Exit.ERROR)
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def _fail(error: VoiceclaimError, code: Exit) -> NoReturn:
    complain(error)
    raise SystemExit(int(code))
