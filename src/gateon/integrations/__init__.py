"""gateon inside other libraries, each imported only when it is used.

May import every room except `reproduce` and `cli`; no room imports it.
"""
