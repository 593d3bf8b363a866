"""Random networks against every method: `python -m tests.fuzz --help`, and docs/fuzzing.md."""
