"""Pretrained encoders: frozen models that turn a sample, such as an image or a text, into a vector."""

from everlearn.encoders.base import Encoder, Features, same_encoder
from everlearn.encoders.cache import encode_with_cache
from everlearn.encoders.catalogue import as_encoder, may_load_by_itself

__all__ = ["Encoder", "Features", "as_encoder", "encode_with_cache", "may_load_by_itself", "same_encoder"]
