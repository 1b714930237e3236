"""More datasets of the field, read from small files in their makers' formats."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from everlearn import Evaluator, learner, run, stream
from everlearn.streams import names
from everlearn.streams.formats import DataError
from everlearn.streams.image_sets import IMAGE_SETS
from everlearn.streams.lazy_samples import LazySamples

RANDOM = np.random.default_rng(0)


def picture(path: Path, side: int = 8, grey: bool = False) -> np.ndarray:
    pixels = RANDOM.integers(0, 256, (side, side) if grey else (side, side, 3)).astype(np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return pixels


def tiny_imagenet(base: Path) -> None:
    folder = base / "tiny-imagenet-200"
    ids = [f"n{number:08}" for number in range(20)]
    rows = []
    for place, label in enumerate(ids):
        for i in range(3):
            picture(folder / "train" / label / "images" / f"{label}_{i}.JPEG", grey=i == 2)
        picture(folder / "val" / "images" / f"val_{place}.JPEG")
        rows.append(f"val_{place}.JPEG\t{label}\t0\t0\t7\t7")
    (folder / "wnids.txt").write_text("\n".join(ids) + "\n")
    (folder / "val" / "val_annotations.txt").write_text("\n".join(rows) + "\n")


def svhn(base: Path) -> None:
    from scipy.io import savemat

    for part, count in (("train", 40), ("test", 20)):
        x = RANDOM.integers(0, 256, (32, 32, 3, count)).astype(np.uint8)
        y = (np.arange(count) % 10 + 1).astype(np.uint8)[:, None]
        (base / "SVHN").mkdir(exist_ok=True)
        savemat(base / "SVHN" / f"{part}_32x32.mat", {"X": x, "y": y})


def emnist(base: Path) -> None:
    folder = base / "EMNIST" / "raw"
    folder.mkdir(parents=True)
    for part, count in (("train", 78), ("test", 26)):
        images = RANDOM.integers(0, 256, (count, 28, 28)).astype(np.uint8)
        labels = (np.arange(count) % 26 + 1).astype(np.uint8)
        for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
            head = b"\x00\x00\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
            (folder / f"emnist-letters-{part}-{kind}-ubyte.gz").write_bytes(
                gzip.compress(head + array.tobytes())
            )


def core50(base: Path) -> None:
    for session in range(1, 12):
        for thing in range(1, 11):
            for frame in range(2):
                file = f"C_{session:02}_{thing:02}_{frame:03}.png"
                picture(base / "core50_128x128" / f"s{session}" / f"o{thing}" / file)


def clear10(base: Path) -> None:
    for part, count in (("train_image_only", 3), ("test", 2)):
        for bucket in range(1, 11):
            for kind in ("BACKGROUND", "baseball", "bus"):
                for i in range(count):
                    picture(
                        base / "clear10" / part / "labeled_images" / str(bucket) / kind / f"{i}.jpg", 6 + i
                    )


MADE: dict[str, tuple[Callable[[Path], None], int, int, int]] = {  # tasks, classes, training samples
    "split-tiny-imagenet": (tiny_imagenet, 20, 20, 60),
    "split-svhn": (svhn, 5, 10, 40),
    "split-emnist": (emnist, 13, 26, 78),
    "split-core50": (core50, 10, 10, 160),
    "core50": (core50, 8, 10, 160),
    "clear10": (clear10, 10, 3, 90),
}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERLEARN_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize("name", MADE)
def test_a_dataset_is_read_split_and_learnt_from_its_makers_files(name: str, tmp_path: Path) -> None:
    make, tasks, classes, samples = MADE[name]
    make(tmp_path)
    s = stream(name, seed=1)
    assert (s.name, s.tasks, len(s.classes), s.samples) == (name, tasks, classes, samples)
    batches = list(s)
    assert sum(len(batch.x) for batch in batches) == samples
    assert all(batch.x.dtype == torch.uint8 and batch.x.ndim == 4 for batch in batches)
    assert [batch.t for batch in batches] == sorted(batch.t for batch in batches)
    chosen = learner("finetune", s, hidden=8, device="cpu")
    assert 0 <= run(chosen, s, Evaluator(), samples=20).accuracy <= 1


def test_every_dataset_is_tested_and_has_a_name() -> None:
    assert MADE.keys() == IMAGE_SETS.keys() and set(IMAGE_SETS) <= set(names())


def test_tiny_imagenet_has_its_validation_images_as_the_test_and_all_in_colour(tmp_path: Path) -> None:
    tiny_imagenet(tmp_path)
    s = stream("split-tiny-imagenet")
    assert s.classes[0] == "n00000000" and s.x.shape[1:] == (3, 8, 8)
    assert s.tests[0][1] == ["n00000000"]
    expected = np.array(Image.open(tmp_path / "tiny-imagenet-200" / "val" / "images" / "val_0.JPEG"))
    assert torch.equal(s.tests[0][0][0], torch.from_numpy(expected.transpose(2, 0, 1)))


def test_svhn_has_ten_for_zero_and_its_images_upright(tmp_path: Path) -> None:
    from scipy.io import loadmat

    svhn(tmp_path)
    s = stream("split-svhn")
    assert s.classes == list(range(10))
    content = loadmat(tmp_path / "SVHN" / "train_32x32.mat")
    place = int((s.y == 0).nonzero()[0])
    assert int(content["y"][place, 0]) == 10
    assert np.array_equal(s.x[place].numpy(), content["X"][:, :, :, place].transpose(2, 0, 1))


def test_the_letters_of_emnist_are_turned_upright(tmp_path: Path) -> None:
    emnist(tmp_path)
    s = stream("split-emnist")
    raw = gzip.decompress(
        (tmp_path / "EMNIST" / "raw" / "emnist-letters-train-images-idx3-ubyte.gz").read_bytes()
    )
    first = np.frombuffer(raw, np.uint8, 28 * 28, 16).reshape(28, 28)
    assert s.classes[:3] == ["a", "b", "c"] and np.array_equal(s.x[0, 0].numpy(), first.T)


def test_core50_comes_by_sessions_with_three_of_them_for_testing(tmp_path: Path) -> None:
    core50(tmp_path)
    s = stream("core50")
    assert len(s.tests) == 1 and len(s.tests[0][1]) == 3 * 10 * 2
    assert all(set(batch.y) <= set(s.classes) for batch in s)
    assert s.current(1) == s.current(s.samples) == (0,)
    one, other = (stream("core50", seed=seed) for seed in (0, 1))
    assert [b.y for b in one] != [b.y for b in other]
    assert len({len(part) for part in one.order}) == 1 and len(one.order) == 8
    kept = stream("core50", validation=True)
    assert kept.samples < s.samples and len(kept.tests) == 8  # a part of every session is held out


def test_clear10_has_a_test_for_every_bucket_and_one_size(tmp_path: Path) -> None:
    clear10(tmp_path)
    s = stream("clear10")
    assert len(s.tests) == 10 and all(len(labels) == 6 for _, labels in s.tests)
    assert s.x.shape[1:] == (3, 64, 64) and s.current(1) == (0,) and s.current(s.samples) == (9,)


def test_permuted_and_rotated_mnist_are_scenarios_of_mnist(mnist_dir: Path) -> None:
    for name, scenario in (("permuted-mnist", "permuted"), ("rotated-mnist", "rotated")):
        s, base = (
            stream(name, data_dir=mnist_dir),
            stream("split-mnist", scenario=scenario, data_dir=mnist_dir),
        )
        assert s.name == name and s.tasks == 5
        assert torch.equal(next(iter(s)).x, next(iter(base)).x)
    with pytest.raises(ValueError, match="permuted-mnist has its own scenario; remove the scenario blurry"):
        stream("permuted-mnist", scenario="blurry", data_dir=mnist_dir)


def test_options_that_can_apply_do_and_others_are_refused(tmp_path: Path) -> None:
    svhn(tmp_path)
    core50(tmp_path)
    s: Any = stream(
        "split-svhn", scenario="blurry", class_order="seed", seed=3, validation=True, batch_size=4
    )
    assert s.scenario == "blurry" and len(next(iter(s)).x) == 4
    with pytest.raises(
        ValueError, match="core50 comes in its own order of sessions; scenario does not apply"
    ):
        stream("core50", scenario="iid")


@pytest.mark.parametrize("name", MADE)
def test_a_missing_dataset_says_what_is_wanted_and_where_it_was_searched(name: str, tmp_path: Path) -> None:
    with pytest.raises(
        DataError,
        match=f"{name} was not found: .* is in none of the folders .*download it",
    ):
        stream(name)


def test_damaged_files_give_one_sentence(tmp_path: Path) -> None:
    svhn(tmp_path)
    emnist(tmp_path)
    (tmp_path / "SVHN" / "train_32x32.mat").write_bytes(b"nothing of MATLAB's")
    with pytest.raises(DataError, match="train_32x32.mat is not a file of SVHN"):
        stream("split-svhn")
    (tmp_path / "EMNIST" / "raw" / "emnist-letters-test-labels-idx1-ubyte.gz").write_bytes(b"\x1f\x8b\x00")
    with pytest.raises(DataError, match="emnist-letters-test-labels-idx1-ubyte.gz can't be read"):
        stream("split-emnist")
    clear10(tmp_path)
    (tmp_path / "clear10" / "test").rename(tmp_path / "gone")
    with pytest.raises(DataError, match="lacks test/labeled_images; unpack clear10-test.zip there"):
        stream("clear10")


def test_images_that_do_not_fit_are_read_lazily(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_imagenet(tmp_path)
    monkeypatch.setattr("everlearn.streams.sources.IN_MEMORY", 100)
    assert isinstance(stream("split-tiny-imagenet").x, LazySamples)
