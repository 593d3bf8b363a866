"""The suites that this package brings: networks and pictures with a known truth, which need no data."""
