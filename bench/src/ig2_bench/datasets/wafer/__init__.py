"""Wafer maps: the public WM-811K, and drawn ones with exact marks."""
