"""Networks by name: those of the library, those of timm, and your own as `module:function` or an entry point.

A function of your own is called with the shape of a sample if it has a parameter, and returns an nn.Module that maps
samples to features: the embedding of CoPE, or the input of the last layer of a softmax learner.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from everlearn.import_names import import_named, is_import_name
from everlearn.messages import nearest
from everlearn.networks.backbones import EMBEDDINGS, IDENTITY, MLP, PixelMean, SlimResNet18, last_layer

__all__ = [
    "CNN",
    "GROUP",
    "ResNet18",
    "check_name",
    "embedding_network",
    "is_built_in",
    "is_own",
    "network_from",
    "trunk",
]

GROUP = "everlearn.networks"  # of entry points
TIMM = "timm:"
EMBEDDING = 256  # of a network of timm


class ResNet18(SlimResNet18):
    """A ResNet18 with 64 filters in its first stage, for small images: no max-pool, 512 features after pooling."""

    widths = (64, 128, 256, 512)
    features = 512


class CNN(nn.Sequential):
    """Three convolutions of 3 x 3 with ReLU and max-pooling between them, and 128 features after pooling.

    It has no batch norm, so that it takes batches of any size.
    """

    features = 128

    def __init__(self, channels: int = 3) -> None:
        layers: list[nn.Module] = []
        for inputs, outputs in ((channels, 32), (32, 64), (64, self.features)):
            layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        super().__init__(*layers, PixelMean())


IMAGE_NETWORKS: dict[str, type[SlimResNet18] | type[CNN]] = {
    "slim-resnet18": SlimResNet18,
    "resnet18": ResNet18,
    "cnn": CNN,
}


def is_own(name: str) -> bool:
    """Whether a name is `module:function`, of a user's own network."""
    return not name.startswith(TIMM) and is_import_name(name)


def is_built_in(name: str) -> bool:
    """Whether a name is of one of the library's own networks."""
    return name in (*EMBEDDINGS, IDENTITY)


def check_name(name: str) -> None:
    """Raise a ValueError for an unknown name, an ImportError for a network of timm if that is not installed."""
    if name.startswith(TIMM):
        timm, kind = _timm(), name.removeprefix(TIMM)
        if not timm.is_model(kind):
            close = nearest(kind, timm.list_models()).partition(" (known")[0]
            raise ValueError(f"timm has no network {kind!r}{close}; `timm.list_models()` lists them")
    elif is_own(name):
        _checked(import_named(name, "network"), name)
    elif not is_built_in(name) and not entry_points(group=GROUP, name=name):
        known = [*EMBEDDINGS, IDENTITY, *(point.name for point in entry_points(group=GROUP))]
        raise ValueError(
            f"there is no network {name!r}{nearest(name, known)}; or give timm:NAME, module:function or an nn.Module"
        )


def trunk(name: str, shape: tuple[int, ...], hidden: int) -> tuple[nn.Module, int]:
    """All layers of a network except the last one, and its number of features."""
    check_name(name)
    if name == IDENTITY:
        return nn.Flatten(), math.prod(shape)
    if name == "mlp":
        return MLP(math.prod(shape), hidden), hidden
    if name in IMAGE_NETWORKS:
        _check_image(name, shape, least=8)
        kind = IMAGE_NETWORKS[name]
        return kind(shape[0]), kind.features
    if name.startswith(TIMM):
        _check_image(name, shape, least=1)
        made = _timm().create_model(name.removeprefix(TIMM), num_classes=0, in_chans=shape[0])
        try:
            return made, _features(made, shape)  # `num_features` is another number for some of them
        except Exception as error:
            reason = " ".join(str(error).split())[:200]
            raise ValueError(f"{name} can't take images of shape {list(shape)}: {reason}") from None
    own = _own(name, shape)
    return own, _features(own, shape)


def embedding_network(name: str, shape: tuple[int, ...], hidden: int, embedding: int | None) -> nn.Module:
    """The network that maps a sample of this shape to an embedding."""
    if name == IDENTITY:
        if embedding not in (None, math.prod(shape)):
            raise ValueError(
                f"identity embeds a sample as it is, in {math.prod(shape)} numbers, not {embedding}"
            )
        return nn.Flatten()
    body, width = trunk(name, shape, hidden)
    if embedding is None and name not in EMBEDDINGS and not name.startswith(TIMM):
        return body  # a user's own network gives the embedding itself
    return nn.Sequential(body, last_layer(body, width, embedding or EMBEDDINGS.get(name, EMBEDDING)))


def _check_image(name: str, shape: tuple[int, ...], least: int) -> None:
    if len(shape) != 3 or min(shape[1:]) < least:
        raise ValueError(
            f"{name} takes images of shape [channels, height, width] of at least {least} x {least}, not {list(shape)}"
        )


def _timm() -> Any:
    try:
        import timm
    except (
        Exception
    ) as error:  # timm imports torchvision, which fails in its own ways where it does not fit torch
        raise ImportError(
            f"networks by the name timm:NAME need timm and torchvision ({error}): pip install timm"
        ) from None
    return timm


def _own(name: str, shape: tuple[int, ...]) -> nn.Module:
    """The network that a function of the user's makes for samples of this shape."""
    if is_own(name):
        make = _checked(import_named(name, "network"), name)
    else:
        make = _checked(next(iter(entry_points(group=GROUP, name=name))).load(), name)
    return network_from(make, shape, name)


def network_from(make: Callable[..., Any], shape: tuple[int, ...], name: str) -> nn.Module:
    """The network that a function or class makes, which gets the shape of a sample if it has a parameter for it."""
    made = make(shape) if _wants_shape(make) else make()
    if not isinstance(made, nn.Module):
        raise ValueError(f"{name} must return an nn.Module, not {type(made).__name__}")
    if any(isinstance(part, UninitializedParameter) for part in made.parameters()):
        with torch.no_grad():
            made(torch.zeros(2, *shape))  # sizes the lazy layers
    return made


def _checked(make: Any, name: str) -> Callable[..., Any]:
    if isinstance(make, nn.Module) or not callable(make):
        raise ValueError(
            f"the network {name!r} must be a function that returns an nn.Module, or its class, so that every learner "
            f"gets its own; it is {type(make).__name__}"
        )
    return make  # type: ignore[no-any-return]


def _wants_shape(make: Callable[..., Any]) -> bool:
    """Whether it has a parameter that must be given."""
    parameters = inspect.signature(make).parameters.values()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return any(each.kind in positional and each.default is each.empty for each in parameters)


def _features(network: nn.Module, shape: tuple[int, ...]) -> int:
    """The size of its output, from one forward pass of zeros that changes nothing."""
    training = network.training
    device = next((part.device for part in network.parameters()), torch.device("cpu"))
    with torch.no_grad():
        output = network.eval()(torch.zeros(2, *shape, device=device))
    network.train(training)
    if not isinstance(output, Tensor) or output.ndim != 2:
        found = list(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise ValueError(f"the network must map a batch of samples to [samples, features], not to {found}")
    return int(output.shape[1])
