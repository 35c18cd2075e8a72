"""Many runs at once: a plan of pieces, and the engines that carry it out.

A piece is one run: a function of nothing but its own arguments, with a directory of its own. The
engines differ in where a piece is done: one after another in this process, in processes of this
machine, or on the nodes of a Ray cluster. Everything else is the same code.

May import `runs` and what it stands on. Ray is imported by `connect` and
`on_ray` alone, when it is asked for.
"""
