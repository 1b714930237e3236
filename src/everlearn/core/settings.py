"""The settings of learners: frozen dataclasses whose fields are parameters in Python and flags in a shell."""

from __future__ import annotations

import dataclasses
import functools
import numbers
from types import NoneType
from typing import Any, ClassVar, get_args, get_type_hints

from everlearn.memory.labels import shortened
from everlearn.messages import either, nearest
from everlearn.training.optimizers import OPTIMIZERS
from everlearn.training.strong_views import STRONG_VIEWS
from everlearn.training.views import AUGMENTATIONS

__all__ = [
    "OWN_FUNCTION",
    "BalancedReplaySettings",
    "ReplaySettings",
    "Settings",
    "SoftmaxMemorySettings",
    "SoftmaxReplaySettings",
    "SoftmaxSettings",
    "make_settings",
    "settings_as_dict",
    "settings_types",
]


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings of every learner."""

    learning_rate: float = 0.01
    """step size of plain SGD"""
    iterations: int = 1
    """gradient steps per batch, each with fresh replay"""
    hidden: int = 400
    """units in each hidden layer, where the network is the MLP"""
    unknown: float | None = None
    """share of known samples that may be rejected as UNKNOWN, to reject samples of other classes; None never does"""
    waiting: int = 1000
    """samples that `ask` stores until `tell` gives their labels; the oldest are dropped first"""
    clip: float | None = None
    """longest step of SGD, learning rate times gradient; a longer one is shortened to it. None for any length"""
    standardise: bool | None = None
    """scale every feature to mean 0 and standard deviation 1 over the samples seen; None: for rows only"""
    missing_labels: str = "refuse"
    """a label of None or NaN: refuse it, skip the sample, or let None be a class"""
    threads: int = 1
    """threads used for computation, whatever the process uses; more than one helps large networks"""
    optimizer: str = "sgd"
    """sgd, adam or adamw; plain SGD is the fastest"""
    optimizer_momentum: float = 0.0
    """momentum of SGD; 0 for none"""
    weight_decay: float = 0.0
    """weight decay of the optimiser: with sgd and adam part of the gradient, with adamw decoupled from it"""
    second_moment: float = 0.999
    """decay per step of the second moment of adam and adamw"""
    precision: str = "full"
    """full, or mixed: on a GPU, ResNets train with convolutions in bfloat16, weights and losses in float32"""

    trains_with: ClassVar[str | None] = None  # the only optimiser, of a method that has its own

    def __post_init__(self) -> None:
        for name, types in settings_types(type(self)).items():  # type: ignore[arg-type]
            value = _as_type(name, getattr(self, name), types)
            object.__setattr__(self, name, value)
            if isinstance(value, float):
                self._check(name, abs(value) <= LARGEST_FLOAT, "a finite number, at most 1e30")
            elif isinstance(value, int):
                self._check(name, abs(value) <= LARGEST, f"at most {LARGEST:,}")
        self._check("learning_rate", self.learning_rate > 0, "above 0")
        self._check("iterations", self.iterations >= 1, "at least 1")
        self._check("hidden", self.hidden >= 1, "at least 1")
        self._check(
            "unknown", self.unknown is None or 0 <= self.unknown < 1, "None, or at least 0 and below 1"
        )
        self._check("waiting", self.waiting >= 1, "at least 1")
        self._check("clip", self.clip is None or self.clip > 0, "None, or above 0")
        rules = ("refuse", "skip", "class")
        self._check("missing_labels", self.missing_labels in rules, either(rules))
        self._check("threads", 1 <= self.threads <= MOST_THREADS, f"between 1 and {MOST_THREADS}")
        self._check("optimizer", self.optimizer in OPTIMIZERS, either(OPTIMIZERS))
        self._check("optimizer_momentum", 0 <= self.optimizer_momentum < 1, "at least 0 and below 1")
        with_momentum = not self.optimizer_momentum or self.optimizer == "sgd"
        self._check(
            "optimizer_momentum", with_momentum, f"0 with the optimizer {self.optimizer}, which has its own"
        )
        self._check("weight_decay", self.weight_decay >= 0, "at least 0")
        self._check("second_moment", 0 < self.second_moment < 1, "between 0 and 1")
        self._check("precision", self.precision in ("full", "mixed"), "full or mixed")
        if self.trains_with is not None:
            only = f"{self.trains_with}, the only one of this method"
            self._check("optimizer", self.optimizer == self.trains_with, only)
            self._check("weight_decay", self.weight_decay == 0, "0 for this method")

    # The value of a setting that an older state lacks, where the default is not what the learner did then.
    before: ClassVar[dict[str, Any]] = {}

    def _check(self, name: str, holds: bool, expected: str) -> None:
        if not holds:
            raise ValueError(f"{name} must be {expected}, not {shortened(getattr(self, name))}")


@dataclasses.dataclass(frozen=True)
class SoftmaxSettings(Settings):
    """The settings of a learner with a softmax; where no benchmark is named, the defaults are Split-MNIST's."""

    learning_rate: float = 0.05
    """step size of plain SGD"""
    clip: float | None = 1.0
    """longest step of SGD, learning rate times gradient; a longer one is shortened to it. None for any length"""
    outputs: int = 0
    """logits in the softmax from the start, seen or not; 0 lets them come with the classes"""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("outputs", self.outputs >= 0, "at least 0")


@dataclasses.dataclass(frozen=True)
class SoftmaxMemorySettings(SoftmaxSettings):
    """The settings of a learner with a softmax and a memory."""

    memory_size: int = 2000
    """|M_r|, exemplars in the replay memory"""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("memory_size", self.memory_size >= 1, "at least 1")


@dataclasses.dataclass(frozen=True)
class ReplaySettings(Settings):
    """Additions to learning with replay, beyond the paper; each is off by default."""

    replayed: int | None = None
    """exemplars replayed in each iteration; by default as many as the batch has samples"""
    augmentation: str = "none"
    """a random view of every image in each iteration: none, shift, affine, crop-flip, strong, crop-flip-grey,
    crop-grey, large-crop-grey, large-crop-flip; auto chooses by the channels; in Python, also a function of a
    batch"""
    width: int | None = None
    """the width of the images in pixels, where grey ones come flat and are augmented, coloured or mirrored"""
    colour: float = 0.0
    """brightness, contrast and, of images in colour, saturation are multiplied by 1 ± up to this in each iteration"""
    cutout: int = 0
    """the side of a square, in pixels, that is blacked out at a random place of every image; 0 for none"""
    mixing: float = 0.0
    """up to this share of another image of the batch in every image, which keeps its own label; 0 for none"""
    averaging: float | None = 0.0
    """decay per batch of the averaged weights used for predictions; 0 for no averaging"""
    mirrored: bool = False
    """predict with the mean score of each image and its mirror image"""
    shifted: int = 0
    """predict with the mean score of each image and of it shifted by so many pixels in four directions; 0 for none"""

    def __post_init__(self) -> None:
        super().__post_init__()
        known = ["none", "auto", *AUGMENTATIONS, "affine", *STRONG_VIEWS]
        self._check("replayed", self.replayed is None or self.replayed >= 1, "at least 1")
        self._check("augmentation", callable(self.augmentation) or self.augmentation in known, either(known))
        self._check("width", self.width is None or self.width >= 1, "at least 1")
        self._check("colour", 0 <= self.colour <= 1, "at least 0 and at most 1")
        self._check("cutout", self.cutout >= 0, "at least 0")
        self._check("mixing", 0 <= self.mixing < 1, "at least 0 and below 1")
        self._check("shifted", self.shifted >= 0, "at least 0")
        share = self.averaging
        self._check("averaging", share is None or 0 <= share < 1, "at least 0 and below 1")


@dataclasses.dataclass(frozen=True)
class TurnedSettings(ReplaySettings):
    """Replay whose images may be turned."""

    turned: float = 0.0
    """share of the images turned by 90, 180 or 270 degrees in each iteration; each turn of a class counts as a class
    of its own, which is never predicted; 0 for none"""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("turned", 0 <= self.turned < 1, "at least 0 and below 1")


@dataclasses.dataclass(frozen=True)
class BalancedReplaySettings(TurnedSettings):
    """The settings of replay from a class-balanced memory. None: a value that suits the kind of input."""

    averaging: float | None = None
    """decay per batch of the averaged weights used for predictions; 0: no averaging; None: 0.99 for rows, else 0"""
    blend: bool | None = None
    """predict with the current and the averaged weights, by how well each predicted lately; None: for rows"""
    new_share: float | None = None
    """share of a step that the new samples have, however many are replayed; 0: by their number; None: 0.5 for rows"""
    half_life: int | None = None
    """samples of a class after which an exemplar counts half; 0: all count the same; None: 125 for rows, else 0"""
    drift: str | None = None
    """exemplars that lose their place: by contradiction, by alarm of the error rate, or none; None: none"""
    calibration: str | None = None
    """fit probabilities to predictions of new samples: none, temperature, replay (and of exemplars), prior (and the
    shares of the classes), full (and biases of the classes); None: full for rows, prior for embeddings, replay for
    images where a step computes what it needs"""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("new_share", self.new_share is None or 0 <= self.new_share < 1, "at least 0 and below 1")
        self._check("half_life", self.half_life is None or self.half_life >= 0, "at least 0")
        self._check("drift", self.drift in (None, *DRIFT), "none, contradiction, alarm or None")
        known = (None, "none", "temperature", "replay", "prior", "full")
        self._check(
            "calibration", self.calibration in known, "none, temperature, replay, prior, full or None"
        )


@dataclasses.dataclass(frozen=True)
class SoftmaxReplaySettings(ReplaySettings, SoftmaxMemorySettings):
    """The settings of a learner with a softmax and replay, and all that can be added."""

    learning_rate: float = (
        SoftmaxSettings.learning_rate
    )  # else that of ReplaySettings, which is every learner's
    """step size of plain SGD"""
    clip: float | None = SoftmaxSettings.clip
    """longest step of SGD, learning rate times gradient; a longer one is shortened to it. None for any length"""


OWN_FUNCTION = "function:"
DRIFT = ("none", "contradiction", "alarm")


def settings_as_dict(settings: Settings) -> dict[str, Any]:
    """The settings as a dict for JSON, with names for functions."""
    return {
        name: OWN_FUNCTION + getattr(value, "__qualname__", type(value).__qualname__)
        if callable(value)
        else value
        for name, value in vars(settings).items()
    }


def make_settings(settings: type[Any], given: dict[str, Any], owner: str) -> Any:
    """Make the settings of a learner from a user's arguments; an unknown one raises a TypeError that names it."""
    known = [field.name for field in dataclasses.fields(settings)]
    for name in given:
        if name not in known:
            raise TypeError(f"{owner} has no setting {name!r}{nearest(name, [*known, 'seed', 'device'])}")
    values = settings(**given)
    if values.unknown is not None and "memory_size" not in known:
        raise ValueError(f"{owner} has no memory to calibrate unknown on")
    return values


# Upper bounds, so that an absurd setting raises an error before memory runs out.
LARGEST = 2**31
LARGEST_FLOAT = 1e30
MOST_THREADS = 1024

# The types of settings as error messages name them, and the abstract types that include numpy's numbers.
TYPE_NAMES = {
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    str: "a word",
    NoneType: "None",
}
ABSTRACT = {int: numbers.Integral, float: numbers.Real}


@functools.cache
def settings_types(settings: type[Settings]) -> dict[str, tuple[type, ...]]:
    """The types that each setting may have, where its hint consists of simple types."""
    hints = {name: get_args(hint) or (hint,) for name, hint in get_type_hints(settings).items()}
    return {name: types for name, types in hints.items() if set(types) <= set(TYPE_NAMES)}


def _as_type(name: str, value: Any, types: tuple[type, ...]) -> Any:
    """The value as one of these types; raises a ValueError otherwise. A function is accepted in place of a str."""
    for type_ in types:
        is_bool = isinstance(value, bool)
        if is_bool == (type_ is bool) and isinstance(value, ABSTRACT.get(type_, type_)):
            try:
                return value if type_ is NoneType else type_(value)
            except OverflowError:
                raise ValueError(f"{name} must be a number that a float can hold") from None
    if str in types and callable(value):
        return value
    expected = either([TYPE_NAMES[type_] for type_ in types])
    raise ValueError(f"{name} must be {expected}, not {shortened(value)}")
