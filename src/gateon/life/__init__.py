"""The living model: one model in a directory, taught task after task and used in between.

Holds how data of any kind is read and encoded, how a task is learned and recognised, and the
directory with its versions. Imports `learners`, `networks`, `streams` and what they stand on.
"""
