"""How good is an attribution? Every metric of the paper, batched, each saying what it does."""
