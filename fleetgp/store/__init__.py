"""History: what was read, what was predicted, what happened."""
