"""The start of the command line, so light that Ctrl-C ends it quietly while the commands are still loading."""

import gc
import sys


def main() -> None:
    """Load the commands and run the one that is asked for; an interruption exits with code 130, quietly.

    A library that cannot be loaded is an error in one line.
    """
    gc.set_threshold(100_000, 50, 100)  # rarely: each collection scans everything that imports allocated
    try:
        from pipeline.cli.app import run

        run()
    except KeyboardInterrupt:
        print("voiceclaim: interrupted", file=sys.stderr)
        raise SystemExit(130) from None
    except (ImportError, OSError) as error:
        reason = str(error).strip().rpartition("\n")[2]
        if isinstance(error, OSError) and "shared object" not in reason:
            raise
        cause = "too little memory (ulimit -v), or a damaged installation?"
        print(f"voiceclaim: a library cannot be loaded: {reason}; {cause}", file=sys.stderr)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
