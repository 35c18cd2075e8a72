"""Single units over time: gain, activity, relevance and availability, step by step.

`trace` is what was seen, `electrode` sees it in a network at work, `recorder` follows a learner
from sub-network to sub-network, `own_loop` is for a training loop of one's own. Imports the rooms
of the mechanism, `storage` and `learners`.
"""
