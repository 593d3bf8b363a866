"""The command `ig2`."""

import os
import sys


def main() -> None:
    """Run the command."""
    os.environ["MPLBACKEND"] = "agg"  # it draws into files alone, whatever backend a notebook or a shell has left there
    try:
        from ig2.cli.app import main
    except ImportError as error:  # the library alone is installed
        print(f"ig2: the command needs more packages ({error}): pip install 'ig2[cli,demo]'", file=sys.stderr)
        sys.exit(1)
    main()


__all__ = ["main"]
