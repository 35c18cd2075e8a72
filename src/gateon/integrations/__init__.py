"""gateon inside other libraries, each imported only when asked for.

May import every room but `reproduce` and `cli`; no room imports it.
"""
