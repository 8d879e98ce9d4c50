"""The start of the command line, so light that Ctrl-C ends it quietly while the commands are still loading."""

import gc
import sys


def main() -> None:
    """Load the commands and run the one that is asked for; an interruption exits with code 130."""
    gc.set_threshold(100_000, 50, 100)  # each collection looks through all that imports made
    try:
        from pipeline.cli.app import run

        run()
    except KeyboardInterrupt:
        print("voiceclaim: interrupted", file=sys.stderr)
        raise SystemExit(130) from None
