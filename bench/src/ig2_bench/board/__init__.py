"""The leaderboard: every method on every data set, who is ahead of whom, and its pages."""
