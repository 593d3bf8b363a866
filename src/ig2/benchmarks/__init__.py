"""Methods compared on data with metrics: suites, the runner, and their tables."""
