"""The experiments of the IG² paper: its data sets, networks, suites and figures, and the tables made from them."""

__version__ = "0.1.0"
