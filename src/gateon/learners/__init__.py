"""What learns batch by batch: the learner, and those that keep several networks or write their own samples.

Imports all rooms of the mechanism, `methods` and `detection`; knows nothing of streams and runs.
"""
