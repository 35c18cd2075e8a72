"""A run: its specification, the loop over tasks, what it measures, its directory and its record.

Imports `streams`, `networks`, `learners` and what they stand on; reports and tables are made
elsewhere.
"""
