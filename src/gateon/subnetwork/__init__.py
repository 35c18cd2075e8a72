"""The active sub-network of a context: its cut, taking it out and writing it back, folding.

Imports `anatomy`, `gating` and `availability`.
"""
