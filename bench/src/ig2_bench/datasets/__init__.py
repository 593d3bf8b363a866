"""Data to compare methods on: the public sets in their public layouts, and stand-ins that need no download."""
