"""What is kept on disk: whole files, checkpoints, locks, and templates that say whether a state fits what it is loaded into.

Imports `anatomy` and `gating`.
"""
