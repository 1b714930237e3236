"""Losses, equation by equation; their fast paths beside them."""

from everlearn.losses import proxy
from everlearn.losses.ppp import Gradient, ppp_loss

__all__ = ["Gradient", "ppp_loss", "proxy"]
