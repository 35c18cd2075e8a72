"""A search for settings: ranges of options, trials on validation data, and their results.

May import `workers`, `runs` and what they stand on. Optuna is imported by `study` alone, when a
search begins. Test data are never looked at.
"""
