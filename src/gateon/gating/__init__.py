"""Principle 1, gated context selectivity: gates, how a model gets them, and its contexts.

Imports `anatomy`.
"""
