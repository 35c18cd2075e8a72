"""Principle 1, gated context selectivity: the gate of one site, all gates of a model, and how a model gets them.

Imports `anatomy`.
"""
