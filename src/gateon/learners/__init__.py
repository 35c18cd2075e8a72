"""What learns batch by batch: `protocol` says what a learner does, and four do it.

`learner` trains one network with any method; `isolated`, `zoo` and `lamol` keep several networks or
write their own samples. Imports all rooms of the mechanism, `methods` and `detection`; knows
nothing of streams and runs.
"""
