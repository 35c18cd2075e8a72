"""What records look like: on a terminal, as tables and as figures. Reads records only.

Imports `runs` and `storage`.
"""
