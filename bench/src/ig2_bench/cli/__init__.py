"""The commands `ig2 bench` and `ig2 figures`."""
