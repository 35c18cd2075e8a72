"""The active sub-network of a context: what of a model is in it, taking it out, writing it back, folding gains into weights.

Imports `anatomy`, `gating` and `availability`.
"""
