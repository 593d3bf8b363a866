"""Faces: the public CelebA, and drawn ones with exact parts."""
