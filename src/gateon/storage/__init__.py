"""What is kept on disk: whole files, checkpoints, locks, and templates that states must match.

Imports `anatomy` and `gating`.
"""
