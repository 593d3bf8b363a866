"""Small tools that know nothing of attributions."""
