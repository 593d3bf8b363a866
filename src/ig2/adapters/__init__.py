"""Adapters from photos, sentences, tables, signals and named models to tensors, and back to readable results."""
