"""`python -m ig2.cli`, the same as `ig2`."""

from ig2.cli import main

if __name__ == "__main__":
    main()
