"""Which context a batch belongs to: inferred from losses while learning, from outputs afterwards.

Imports `storage`.
"""
