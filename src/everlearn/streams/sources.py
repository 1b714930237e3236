"""Read your own data: arrays, torch Datasets, folders and lists of images, Hugging Face datasets."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from everlearn.messages import is_whole
from everlearn.streams.base import native
from everlearn.streams.lazy_samples import LazySamples

__all__ = ["Labelled", "Reading", "as_size", "read"]

# Samples are read into memory if they need no more than this; else they are decoded again when they come.
IN_MEMORY = 10**9

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
NUMBERS = "biuf"  # kinds of numpy's types
Size = tuple[int, int]
Transform = Callable[[Any], Any]


@dataclasses.dataclass(frozen=True)
class Labelled:
    """Samples and a label for each. name: of a folder, to name the stream by."""

    x: Tensor | LazySamples
    y: list[Any]
    name: str | None = None


@dataclasses.dataclass(frozen=True)
class Reading:
    """How samples are read.

    size: height and width that images are resized to. transform: a function of a decoded sample, a Pillow image
    where it comes from a file. in_memory: whether to keep all of them; None where they need at most a gigabyte.
    colour: whether images become RGB or grey; None for what the first one is.
    """

    size: Size | None = None
    transform: Transform | None = None
    workers: int | None = None
    in_memory: bool | None = None
    colour: bool | None = None


def read(x: Any, y: Any, how: Reading) -> Labelled:
    """Samples and labels of whatever the user gave; a ValueError says what was expected."""
    if isinstance(x, str | os.PathLike):
        if y is not None:
            raise ValueError(f"the labels of the folder {os.fspath(x)} are its subfolders; leave y out")
        return _folder(Path(x), how)
    if _is_hugging_face(x):
        return _hugging_face(x, y, how)
    if hasattr(x, "to_numpy"):  # pandas, polars
        x = x.to_numpy()
    if isinstance(x, list | tuple) and y is not None:
        x = _rows(x)
    if isinstance(x, np.ndarray | Tensor):
        return Labelled(_array(x, how), _labels(y, len(x)))
    if isinstance(x, list | tuple) and x and all(isinstance(item, str | os.PathLike) for item in x):
        files = [os.fspath(item) for item in x]
        return Labelled(_from_files(files, how), _labels(y, len(files)))
    sparse = hasattr(x, "toarray")
    if hasattr(x, "__getitem__") and hasattr(x, "__len__") and not isinstance(x, dict) and not sparse:
        return _map_style(x, y, how)
    raise ValueError(
        "split takes arrays or tensors x and y, a folder with a subfolder of images for each class, a list of image "
        f"files and y, a torch Dataset with a length or a Hugging Face dataset, not {type(x).__name__}"
    )


def _rows(x: Any) -> Any:
    """Lists of numbers as an array; anything else as it is."""
    if not x or not isinstance(x[0], list | tuple):
        return x
    try:
        rows = np.array(x)
    except (TypeError, ValueError):  # pairs, or of different lengths
        return x
    return rows if rows.dtype.kind in NUMBERS else x


def _array(x: Any, how: Reading) -> Tensor | LazySamples:
    if isinstance(x, np.ndarray) and x.dtype.kind not in NUMBERS:
        raise ValueError(
            f"x is an array of the type {x.dtype}, but one of numbers was expected; turn texts and categories into "
            "numbers, then x.astype(float)"
        )
    samples = x if isinstance(x, Tensor) else torch.from_numpy(_writeable(native(x)))
    if how.size is not None:
        raise ValueError("size is for image files and Pillow images; resize an array before")
    if how.transform is None:
        return samples
    return _lazy(samples, _same, how)


def _writeable(x: Any) -> Any:
    return x if x.flags.writeable else x.copy()


def _labels(y: Any, samples: int) -> list[Any]:
    if y is None:
        raise ValueError("y is missing: pass one label for each sample of x")
    if getattr(y, "ndim", 1) != 1:
        raise ValueError(
            f"y has the shape {list(y.shape)}, but one label for each sample was expected; pass one column of it, or "
            "y.argmax(1) if it is one-hot"
        )
    labels = y.tolist() if hasattr(y, "tolist") else list(y)
    for label in labels:
        if isinstance(label, list | dict | set | np.ndarray):
            raise ValueError(
                f"a label must be a str, int, float, bool, None, bytes or a tuple of these, not {label!r}"
            )
    if len(labels) != samples:
        raise ValueError(
            f"x has {samples} samples but y has {len(labels)} labels; pass one label for each sample"
        )
    return labels


# Folders of images.


def _folder(folder: Path, how: Reading) -> Labelled:
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder; pass a folder with a subfolder of images for each class")
    files: list[str] = []
    labels: list[str] = []
    for sub in sorted(part for part in folder.iterdir() if part.is_dir() and not part.name.startswith(".")):
        found = sorted(
            str(path) for path in sub.rglob("*") if path.suffix.lower() in IMAGES and path.is_file()
        )
        files += found
        labels += [sub.name] * len(found)
    if not files:
        raise ValueError(
            f"{folder} has no images in subfolders; pass a folder with a subfolder of images "
            f"({', '.join(IMAGES[:4])}, …) for each class"
        )
    return Labelled(_from_files(files, how), labels, folder.resolve().name)


def _decode_file(path: Any) -> Any:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            image.load()
            return image
    except FileNotFoundError:
        raise ValueError(f"the image {path} does not exist") from None
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
        reason = "it is not an image" if isinstance(error, UnidentifiedImageError) else error
        raise ValueError(f"the image {path} can't be read ({reason}); remove it, or write it again") from None


# Datasets.


def _is_hugging_face(x: Any) -> bool:
    return hasattr(x, "features") and hasattr(x, "column_names") and hasattr(x, "with_format")


def _hugging_face(x: Any, y: Any, how: Reading) -> Labelled:
    """The column of class labels, and the image or the only other column."""
    columns = list(x.column_names)
    label = (
        y
        if isinstance(y, str)
        else next((c for c in ("label", "labels", "fine_label") if c in columns), None)
    )
    if label not in columns:
        raise ValueError(f"which column has the labels? Pass its name as y; there are {', '.join(columns)}")
    rest = [column for column in columns if column != label]
    sample = next((c for c in ("image", "img") if c in rest), rest[0] if len(rest) == 1 else None)
    if sample is None:
        raise ValueError(
            f"which column has the samples? Keep only it and {label!r}, by select_columns; there are "
            f"{', '.join(columns)}"
        )
    numbers = list(x[label])
    names = getattr(x.features[label], "names", None)
    labels = numbers if names is None else [names[number] for number in numbers]
    return Labelled(_lazy(_Column(x, sample), _same, how), labels)


class _Column:
    """The values of one column by place."""

    def __init__(self, dataset: Any, column: str) -> None:
        self._dataset, self._column = dataset, column

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, place: int) -> Any:
        return self._dataset[place][self._column]


class _First:
    """The samples of a map-style dataset, whose items are pairs (x, y)."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, place: int) -> Any:
        return self._dataset[place][0]


def _map_style(x: Any, y: Any, how: Reading) -> Labelled:
    if len(x) == 0:
        raise ValueError("the dataset is empty")
    first = x[0]
    _load(first[0] if isinstance(first, tuple | list) and first else first)
    if not isinstance(first, tuple | list) or len(first) < 2:
        if y is None:
            raise ValueError(
                f"the items of the dataset must be pairs (x, y), but the first is {type(first).__name__}"
            )
        return Labelled(_lazy(x, _same, how), _labels(y, len(x)))
    return Labelled(_lazy(_First(x), _same, how), _labels(_known_labels(x) if y is None else y, len(x)))


def _known_labels(dataset: Any) -> Any:
    """The labels of a dataset, from where torchvision's datasets have them; else by a pass over all items."""
    tensors = getattr(dataset, "tensors", None)
    if isinstance(tensors, tuple) and len(tensors) >= 2:
        return tensors[1]
    for name in ("targets", "labels"):
        found = getattr(dataset, name, None)
        if found is not None and hasattr(found, "__len__") and len(found) == len(dataset):
            return found
    labels = []
    for place in range(len(dataset)):
        sample, label = dataset[place][:2]
        _load(sample)
        labels.append(label.item() if isinstance(label, Tensor) else label)
    return labels


# Images that were read into memory lately, so that a stream with another seed need not decode them again.
_read_lately: dict[Any, Tensor] = {}
LATELY = 2  # training and test images


def _from_files(files: list[str], how: Reading) -> Tensor | LazySamples:
    try:
        changed = tuple(os.stat(file).st_mtime_ns for file in files)
        name = tuple(files), changed, how
        hash(name)
    except (OSError, TypeError):  # a file is missing, which is explained when it is read; or an odd transform
        return _lazy(files, _decode_file, how)
    if name in _read_lately:
        return _read_lately[name]
    samples = _lazy(files, _decode_file, how)
    if isinstance(samples, Tensor):
        while len(_read_lately) >= LATELY:
            del _read_lately[next(iter(_read_lately))]
        _read_lately[name] = samples
    return samples


# From an item to a tensor.


def _lazy(items: Any, load: Callable[[Any], Any], how: Reading) -> Tensor | LazySamples:
    if how.size is not None:
        height, width = how.size
        if height < 1 or width < 1:
            raise ValueError(f"size is (height, width), each at least 1, not {how.size!r}")
    colour = _has_colour(load(items[0])) if how.colour is None else how.colour
    decode = functools.partial(_decode, load, how.size, how.transform, colour)
    samples = LazySamples(items, decode, how.workers)
    if how.in_memory is False or (how.in_memory is None and samples.nbytes > IN_MEMORY):
        return samples
    return torch.cat(list(samples.chunks()))


def _has_colour(first: Any) -> bool:
    _load(first)
    return getattr(first, "mode", "RGB") not in ("1", "L", "LA", "I", "I;16", "F")


def _decode(
    load: Callable[[Any], Any], size: Size | None, transform: Transform | None, colour: bool, item: Any
) -> Tensor:
    """A sample as a tensor; an image is `[channels, height, width]` in bytes, grey if the first image is."""
    sample = load(item)
    if _is_image(sample):
        sample = _of_8_bits(sample, item).convert("RGB" if colour else "L")
        if size is not None and sample.size != size[::-1]:
            sample = sample.resize(size[::-1])
    sample = sample if transform is None else transform(sample)
    if _is_image(sample):
        pixels = np.array(sample, np.uint8)
        sample = pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))
    if isinstance(sample, Tensor):
        return sample
    values = np.array(sample)
    if values.dtype.kind not in NUMBERS:
        raise ValueError(
            f"a sample is a {type(sample).__name__}, but an image or numbers were expected; pass a transform that "
            "makes a tensor of it"
        )
    return torch.from_numpy(values)


def _of_8_bits(image: Any, item: Any) -> Any:
    """The image, with grey values of 16 bits scaled to 8; Pillow's own `convert` makes all above 255 white."""
    if image.mode == "F":
        named = f"the image {item}" if isinstance(item, str) else "an image"
        raise ValueError(f"{named} has floating-point values; save it with 8 or 16 bits for each pixel")
    if not image.mode.startswith("I"):
        return image
    from PIL import Image

    return Image.fromarray((np.array(image).clip(0, 2**16 - 1) // 2**8).astype(np.uint8))


def _is_image(sample: Any) -> bool:
    """Whether it is a Pillow image."""
    return hasattr(sample, "convert") and hasattr(sample, "resize") and hasattr(sample, "load")


def _load(sample: Any) -> None:
    """Read a Pillow image, which closes its file."""
    if _is_image(sample):
        sample.load()


def _same(item: Any) -> Any:
    return item


def as_size(size: int | Sequence[int] | None) -> Size | None:
    """Height and width; one number is both."""
    if size is None:
        return None
    sides = (size, size) if not isinstance(size, Sequence) else tuple(size)
    if len(sides) != 2 or not all(is_whole(side) for side in sides):
        raise ValueError(f"size is (height, width) or one number for both, not {size!r}")
    return int(sides[0]), int(sides[1])
