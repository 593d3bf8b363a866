"""`python -m ig2` is the command `ig2`."""

from ig2.cli import main

if __name__ == "__main__":
    main()
