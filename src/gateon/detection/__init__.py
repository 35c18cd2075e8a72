"""Which context is at hand: inferred from losses while learning, recognised from outputs when only predicting.

Imports `storage`.
"""
