"""Recorded streams, read as their spec says."""
