"""Data sets: where files are found, fetched, verified and read."""
