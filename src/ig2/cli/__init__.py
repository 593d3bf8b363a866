"""The command `ig2`."""

import sys


def main() -> None:
    """Run the command."""
    try:
        from ig2.cli.app import main
    except ImportError as error:  # the library alone is installed
        print(f"ig2: the command needs more packages ({error}): pip install 'ig2[cli,demo]'", file=sys.stderr)
        sys.exit(1)
    main()


__all__ = ["main"]
