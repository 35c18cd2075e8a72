"""Fine-tuning: one network, task after task, nothing done against forgetting."""

from .base import Method

__all__ = ["Finetune"]


class Finetune(Method):
    """The lower bound every method is compared with.

    >>> Finetune().name
    'finetune'
    """
