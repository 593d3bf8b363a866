"""The paper's figures, each computed once and drawn from what was stored. Needs matplotlib: pip install 'ig2[plots]'."""
