"""Several processes that train one network, each with a share of every batch.

Imports `anatomy`.
"""
