"""From the things people have (photos, sentences, tables, models by name) to tensors, and back to what they can read."""
