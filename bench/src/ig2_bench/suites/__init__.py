"""Methods compared on the paper's data sets, each a suite of `ig2 bench`."""
