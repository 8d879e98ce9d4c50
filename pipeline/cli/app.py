"""Command line: each command parses its arguments, makes one library call and prints the result.

Exit codes: 0 done or accepted, 1 rejected, 2 an error, 3 not enough speech or undecided, 4 done in part, 130
interrupted.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperOption

from pipeline import __version__
from pipeline.cli.audit import audit
from pipeline.cli.background import background
from pipeline.cli.backup import store
from pipeline.cli.calibrate import calibrate
from pipeline.cli.compare import compare, plot
from pipeline.cli.compare_voices import compare_voices
from pipeline.cli.convert import convert
from pipeline.cli.demo import demo
from pipeline.cli.enroll import enroll
from pipeline.cli.evaluate import evaluate
from pipeline.cli.identify import identify
from pipeline.cli.options import DONE, ENDING, ERROR, INTERRUPTED, NOT_ENOUGH_SPEECH
from pipeline.cli.record import record
from pipeline.cli.seal import seal
from pipeline.cli.serve import serve
from pipeline.cli.speakers import speakers
from pipeline.cli.terminal import print_error, print_line, print_note, separate_output
from pipeline.cli.trials import trials
from pipeline.cli.verify import verify
from pipeline.errors import NotEnoughSpeechError, VoiceclaimError


class _Command(TyperCommand):
    """A command that refuses a single-value option given twice, where Typer would take the last value.

    It also refuses empty values: an empty path would be the current folder.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse ``args`` as any command."""
        values, _, order = self.make_parser(ctx).parse_args(args=list(args))
        for option, times in Counter(order).items():
            given = values.get(option.name)
            if "" in (given if isinstance(given, list | tuple) else [given]):
                name = option.opts[0] if isinstance(option, TyperOption) else option.metavar
                ctx.fail(f"{name} is empty; a variable of the shell that is not set?")
            if times > 1 and isinstance(option, TyperOption) and not option.multiple and not option.is_flag:
                ctx.fail(f"{option.opts[0]} takes one value, and is given {times} times")
        return super().parse_args(ctx, args)


app = typer.Typer(
    name="voiceclaim",
    help="Enroll speakers from audio, and verify that a speaker is who they claim to be. Exit codes: 0 done or"
    " accepted, 1 rejected, 2 an error, 3 not enough speech or undecided, 4 done in part.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_GROUPS: dict[str, tuple[Callable[..., None], ...]] = {
    "Every day": (enroll, background, record, verify, identify, compare_voices, demo),
    "Evaluation": (trials, evaluate, compare, plot, convert),
    "Stores": (calibrate, seal, audit),
    "Service": (serve,),
}
for group, commands in _GROUPS.items():
    for command in commands:
        app.command(rich_help_panel=group)(command)
app.add_typer(speakers, name="speakers", rich_help_panel="Stores")
app.add_typer(store, name="store", rich_help_panel="Stores")
for command_info in (*app.registered_commands, *speakers.registered_commands, *store.registered_commands):
    command_info.cls = _Command


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


@contextmanager
def signals_leave() -> Iterator[None]:
    """Make SIGTERM, and SIGHUP of a closed terminal, raise SystemExit, so that no incomplete file is left behind."""

    def leave(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    numbers = {number for number in ENDING if number != signal.SIGINT}  # Ctrl-C raises KeyboardInterrupt
    ignored = {number for number in numbers if signal.getsignal(number) is signal.SIG_IGN}  # as under nohup
    earlier = {number: signal.signal(number, leave) for number in numbers - ignored}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


def run() -> None:
    """Run the command line; print errors in one line and exit with the code of their type."""
    separate_output()
    warnings.showwarning = lambda message, *_: print_note(f"note: {message}")
    code = ERROR
    try:
        with signals_leave():
            code = app(prog_name="voiceclaim", standalone_mode=False) or DONE
    except typer.TyperException as error:
        _print_usage_error(error)
    except NotEnoughSpeechError as error:
        print_error(error)
        code = NOT_ENOUGH_SPEECH
    except VoiceclaimError as error:
        print_error(error)
    except MemoryError as error:
        print_error(
            f"not enough memory: {str(error) or 'an allocation failed'}; fewer --jobs and shorter recordings need less"
        )
    except OSError as error:  # a path on the command line that nothing else has checked
        if error.errno in (errno.EMFILE, errno.ENFILE):
            print_error("too many open files; let this command open more (ulimit -n)")
        elif error.filename is None:
            raise
        else:
            print_error(f"{os.fspath(error.filename)}: {error.strerror}")
    if code == INTERRUPTED:
        print_error("interrupted; a store that was being changed is changed wholly or not at all")
    raise SystemExit(code)


def _print_usage_error(error: typer.TyperException) -> None:
    """Print what is wrong with a command line, and where its help is."""
    from pydantic import ValidationError

    message = " ".join(error.format_message().removeprefix("Invalid value: ").split()).rstrip(".")
    if message:  # else the help was printed
        context = getattr(error, "ctx", None)
        command = "voiceclaim" if context is None else context.command_path
        cause = error.__cause__
        refused = str(cause.errors()[0]["input"]) if isinstance(cause, ValidationError) else ""
        got = f", got {refused!r}" if refused and repr(refused) not in message else ""
        print_error(f"{message}{got}{_likely_cause(error, refused, command)}; see {command} --help")


def _likely_cause(error: typer.TyperException, refused: str, command: str) -> str:
    """Return the likely cause of a usage error, if the command line or the ``refused`` value shows it, else ""."""
    from pipeline.evaluation.text_lists import DECIMAL_COMMA, has_decimal_comma

    option = getattr(error, "option_name", None) or ""
    if option == "--store" and "No such option" in error.format_message():
        return "; here the store is the first argument, not an option"
    # For a word such as -probe.wav, the parser's error names the option -p.
    file = next((word for word in sys.argv if word.startswith(option) and Path(word).suffix), None)
    if file is not None and len(option) == 2:
        return f"; a file whose name begins with - is given as ./{file}, or after --"
    if command == "voiceclaim enroll" and "extra argument" in error.format_message():
        return "; enroll takes one folder, with a folder per speaker in it: give the folder above them"
    if has_decimal_comma(refused.encode(errors="replace")):
        return f"; {DECIMAL_COMMA}"
    if getattr(getattr(error, "param", None), "metavar", None) == "P":
        return "; one percent is 0.01"
    return ""
