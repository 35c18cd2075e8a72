"""What records look like: on a terminal, as tables, as figures and as a page. Reads records only.

Imports `runs` and `storage`.
"""
