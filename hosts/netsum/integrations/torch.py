"""The former place of what is now in :mod:`netsum.torch`."""

from netsum.torch.gradients import BUCKET_BYTES, average_gradients

__all__ = ["BUCKET_BYTES", "average_gradients"]
