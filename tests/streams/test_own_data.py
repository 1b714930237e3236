"""Your own data as a stream: every kind of source, every scenario, in memory and lazily."""

from __future__ import annotations

import os
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from scipy import sparse
from torch.utils.data import TensorDataset

from everlearn import Evaluator, learner, run, split, stream
from everlearn.streams import sources
from everlearn.streams.lazy_samples import LazySamples
from everlearn.streams.scenarios import SCENARIOS

ANIMALS = ["ant", "bee", "cat", "dog", "elk", "fox"]


def table(samples: int = 120) -> tuple[np.ndarray, list[str]]:
    """Samples whose first number is their place, so that each can be recognised."""
    x = np.zeros((samples, 4), np.float32)
    x[:, 0] = np.arange(samples)
    return x, [ANIMALS[i % 6] for i in range(samples)]


def places(s: Any) -> list[int]:
    return [int(sample) for batch in s for sample in batch.x[:, 0]]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 8 x 8 PNGs of six classes, each of its own colour."""
    folder = tmp_path_factory.mktemp("photos")
    random = np.random.default_rng(0)
    for number, label in enumerate(ANIMALS):
        (folder / label).mkdir()
        for i in range(20):
            colour = np.array([40 * number, 255 - 40 * number, 128], float)
            pixels = (colour + random.normal(0, 10, (8, 8, 3))).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / label / f"{i:02}.png")
    return folder


# What is sent


def test_each_task_has_its_classes_and_every_sample_comes_once() -> None:
    x, y = table()
    s = split(x, y, tasks=3, test=0.25)
    tasks = {t: set() for t in range(3)}
    for batch in s:
        tasks[batch.t] |= set(batch.y)
        assert [y[int(place)] for place in batch.x[:, 0]] == batch.y
    assert tasks == {0: {"ant", "bee"}, 1: {"cat", "dog"}, 2: {"elk", "fox"}}
    tested = [int(place) for test, _ in s.tests for place in test[:, 0]]
    assert sorted(places(s) + tested) == list(range(120))
    assert Counter(y[place] for place in tested) == dict.fromkeys(ANIMALS, 5)


def test_classes_that_do_not_divide_evenly_give_the_first_tasks_one_more() -> None:
    s = split(*table(), tasks=4)
    assert [len(set(labels)) for _, labels in s.tests] == [2, 2, 1, 1]


def test_the_test_samples_are_the_same_for_every_seed_and_the_order_is_not() -> None:
    one, other = (split(*table(), tasks=3, seed=seed) for seed in (0, 1))
    assert all(torch.equal(a, b) for (a, _), (b, _) in zip(one.tests, other.tests, strict=True))
    assert places(one) != places(other) and places(one) == places(split(*table(), tasks=3, seed=0))


def test_validation_never_touches_the_test_samples() -> None:
    x, y = table()
    tested = {int(place) for test, _ in split(x, y, tasks=3).tests for place in test[:, 0]}
    s = split(x, y, tasks=3, validation=0.25)
    validated = {int(place) for test, _ in s.tests for place in test[:, 0]}
    assert not tested & (validated | set(places(s))) and len(validated) == 24


def test_test_data_of_its_own_is_used_as_it_is() -> None:
    x, y = table()
    s = split(x, y, tasks=2, test=(x[:12] + 1000, y[:12]))
    assert s.samples == 120
    assert sorted(int(place) for test, _ in s.tests for place in test[:, 0]) == list(range(1000, 1012))


def test_labels_that_are_numbers_are_sorted_by_value_and_stay_numbers() -> None:
    s = split(np.zeros((24, 2)), [10, 9, 100, 2] * 6, tasks=2)
    assert s.classes == [2, 9, 10, 100] and set(next(iter(s)).y) <= {2, 9}


def test_an_imbalanced_stream_sends_all_of_one_task_and_a_tenth_of_each_other() -> None:
    s = split(*table(240), tasks=3, imbalance=2)
    assert [len(task) for task in s.order] == [7, 64, 7]


# The order of classes


@pytest.mark.parametrize("make", [lambda **o: split(*table(), tasks=3, **o), lambda **o: stream(**o)])
def test_the_class_order_may_follow_the_seed_or_be_given(make: Any) -> None:
    def order(s: Any) -> list[Any]:
        return [sorted(set(np.asarray(labels).tolist())) for _, labels in s.tests]

    plain = make()
    assert order(make(class_order="seed", seed=1)) == order(make(class_order="seed", seed=1)) != order(plain)
    assert order(make(class_order="seed", seed=1)) != order(make(class_order="seed", seed=2))
    turned = plain.classes[::-1]
    assert order(make(class_order=turned)) == order(plain)[::-1]


def test_a_long_tail_follows_the_class_order() -> None:
    s = split(*table(600), tasks=3, scenario="long-tailed", amount=0.1, class_order=ANIMALS[::-1])
    sent = Counter(label for batch in s for label in batch.y)
    assert [label for label, _ in sent.most_common()] == ANIMALS[::-1]


# Sources


def test_a_folder_of_images_is_a_stream_named_after_it(photos: Path) -> None:
    s = split(photos, tasks=3, batch_size=8)
    batch = next(iter(s))
    assert s.name == photos.name and s.classes == ANIMALS and s.samples == 96
    assert batch.x.shape == (8, 3, 8, 8) and batch.x.dtype == torch.uint8
    first = sorted((photos / "ant").iterdir())[0]
    pixels = torch.from_numpy(np.array(Image.open(first)).transpose(2, 0, 1))
    assert any(torch.equal(pixels, sample) for sample in torch.cat([s.x, s.source.x_test]))


def test_lazy_images_are_the_same_as_those_in_memory_in_every_scenario(photos: Path) -> None:
    def same(a: torch.Tensor | LazySamples, b: torch.Tensor | LazySamples) -> bool:
        return torch.equal(a[:], b[:])

    for name in SCENARIOS:
        kept, lazy = (split(photos, tasks=3, scenario=name, in_memory=m, workers=0) for m in (True, False))
        assert isinstance(lazy.x, LazySamples) and not isinstance(kept.x, LazySamples)
        for a, b in zip(kept, lazy, strict=True):
            assert torch.equal(a.x, b.x) and list(a.y) == list(b.y) and a.t == b.t
        for moment in (1, kept.samples // 2, kept.samples):
            pairs = zip(kept.tests_at(moment), lazy.tests_at(moment), strict=True)
            assert all(same(a, b) and list(y) == list(z) for (a, y), (b, z) in pairs), name


def test_worker_processes_decode_the_same_batches_in_the_same_order(photos: Path) -> None:
    plain, ahead = (split(photos, tasks=3, in_memory=False, workers=w) for w in (0, 2))
    before = torch.random.get_rng_state()
    assert all(torch.equal(a.x, b.x) and a.y == b.y for a, b in zip(plain, ahead, strict=True))
    assert torch.equal(before, torch.random.get_rng_state())  # the user's own randomness is not touched


def test_a_run_on_lazy_images_gives_the_same_numbers(photos: Path) -> None:
    results = [
        run(
            learner("reservoir", hidden=64, iterations=10, device="cpu"),
            split(photos, tasks=3, in_memory=kept, workers=0),
            Evaluator(representation=True),
        )
        for kept in (True, False)
    ]
    assert results[0].accuracy == results[1].accuracy > 0.3
    assert np.array_equal(results[0].confusion, results[1].confusion)
    assert results[0].history[-1].variance == results[1].history[-1].variance


def test_a_list_of_files_and_a_dataset_give_the_same_stream_as_the_folder(photos: Path) -> None:
    files = sorted(photos.glob("*/*.png"))
    labels = [path.parent.name for path in files]

    class Photos(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return len(files)

        def __getitem__(self, place: int) -> tuple[Image.Image, str]:
            return Image.open(files[place]), labels[place]

    streams = [split(photos, tasks=3), split(files, labels, tasks=3), split(Photos(), tasks=3)]
    first = [batch.x for batch in streams[0]]
    for other in streams[1:]:
        assert all(torch.equal(a, b.x) for a, b in zip(first, other, strict=True))


def test_a_tensor_dataset_gives_its_tensors() -> None:
    x, y = torch.arange(24.0).reshape(24, 1), torch.arange(24) % 4
    s = split(TensorDataset(x, y), tasks=2)
    assert sorted(places(s) + [int(v) for test, _ in s.tests for v in test]) == list(range(24))
    assert s.classes == [0, 1, 2, 3]


def test_a_hugging_face_dataset_gives_images_and_the_names_of_its_classes(photos: Path) -> None:
    datasets = pytest.importorskip("datasets")
    files = sorted(map(str, photos.glob("*/*.png")))
    names = [Path(path).parent.name for path in files]
    kinds = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=ANIMALS)})
    data = datasets.Dataset.from_dict({"image": files, "label": names}, features=kinds)
    first, other = split(photos, tasks=3), split(data, tasks=3)
    assert other.classes == ANIMALS
    assert all(torch.equal(a.x, b.x) and a.y == b.y for a, b in zip(first, other, strict=True))


def test_images_are_decoded_once_for_several_seeds_and_again_after_a_file_changed(
    tmp_path: Path, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for label in ("ant", "bee"):
        (tmp_path / label).mkdir()
        for i in range(4):
            Image.open(photos / label / f"{i:02}.png").save(tmp_path / label / f"{i}.png")
    opened: list[str] = []
    decode = sources._decode_file
    monkeypatch.setattr(sources, "_decode_file", lambda path: opened.append(path) or decode(path))
    for seed in range(3):
        split(tmp_path, tasks=2, seed=seed, workers=0)
    assert len(set(opened)) == 8 and len(opened) <= 10  # the first one also shows the shape and the colour
    changed = tmp_path / "ant" / "0.png"
    Image.open(photos / "cat" / "00.png").save(changed)
    os.utime(changed, ns=(1, 1))
    before = len(opened)
    split(tmp_path, tasks=2, workers=0)
    assert str(changed) in opened[before:]


def test_grey_values_of_16_bits_are_scaled_to_8(tmp_path: Path) -> None:
    shades = np.linspace(0, 2**16 - 1, 16).astype(np.uint16).reshape(4, 4)
    for label in ("ant", "bee"):
        (tmp_path / label).mkdir()
        for i in range(2):
            Image.fromarray(shades).save(tmp_path / label / f"{i}.png")
    assert split(tmp_path, tasks=2).x[0, 0].flatten().tolist() == list(range(0, 256, 17))
    Image.fromarray(np.ones((4, 4), np.float32)).save(tmp_path / "bee" / "2.tiff")
    with pytest.raises(
        ValueError, match=r"the image .*2\.tiff has floating-point values; save it with 8 or 16"
    ):
        split(tmp_path, tasks=2)


def test_images_are_resized_and_a_transform_may_do_anything_else(photos: Path) -> None:
    assert split(photos, size=(4, 6)).x.shape[1:] == (3, 4, 6)
    s = split(photos, transform=lambda image: np.array(image, np.float32).mean((0, 1)))
    assert s.x.shape == (96, 3) and s.x.dtype == torch.float32


def test_a_stream_of_ones_own_can_be_sent_to_another_process(photos: Path) -> None:
    s = split(photos, tasks=3, scenario="rotated", in_memory=False, workers=0)
    again = pickle.loads(pickle.dumps(s))
    assert all(torch.equal(a.x, b.x) for a, b in zip(s, again, strict=True))


def test_learners_by_name_take_a_stream_of_ones_own(photos: Path) -> None:
    s = split(photos, tasks=3)
    assert run(learner("iid-online", s, hidden=64, iterations=10), s).accuracy > 0.3


# Mistakes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tasks": 7}, "tasks must be from 1 to the number of classes, 6, not 7"),
        ({"class_order": "sed"}, "did you mean 'seed'"),
        ({"class_order": ["ant", "bee"]}, "must name each of the 6 classes once"),
        ({"scenario": "blury"}, "did you mean 'blurry'"),
        ({"test": 1.5}, "test must be a share above 0 and below 1"),
        ({"imbalance": 9}, "imbalance must be one of the tasks 1 to 5, not 9"),
        ({"test": (np.zeros((2, 9), np.float32), ["ant", "bee"])}, "the test samples have the shape"),
        ({"test": (np.zeros((1, 4), np.float32), ["owl"])}, "the class 'owl', which no training sample has"),
        ({"size": 8}, "size is for image files"),
        ({"size": 8.5}, r"size is \(height, width\) or one number for both, not 8.5"),
        ({"colour": "grey"}, "colour is True for RGB, False for grey, or None .* not 'grey'"),
        ({"validation": "yes"}, "validation must be a share above 0 and below 1, .* not 'yes'"),
        ({"scenario": "blurry", "amount": "0.5"}, "a number from 0 to 1, not '0.5'"),
        ({"class_order": None}, "class_order is a list of labels, or one of sorted, seed, not None"),
    ],
)
def test_a_mistake_is_one_clear_sentence(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        split(*table(), **arguments)


@pytest.mark.parametrize("kind", [np.ndarray.tolist, lambda x: [tuple(row) for row in x], list, pd.DataFrame])
def test_rows_of_any_kind_are_samples_with_all_their_values(kind: Any) -> None:
    x, y = table()
    whole, given = split(x, y), split(kind(x), y)
    assert torch.equal(given.x.float(), whole.x)


def test_a_list_of_images_as_nested_lists_keeps_their_rows_and_columns() -> None:
    x = np.arange(8.0 * 3 * 4).reshape(8, 3, 4)
    assert split(x.tolist(), ["ant", "bee"] * 4, tasks=2).x.shape == (6, 3, 4)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.array([["a", "b"]] * 120), "x is an array of the type <U1, but one of numbers was expected"),
        (pd.DataFrame({"a": ["u", "v"] * 60}), "x is an array of the type (object|str|<U1), but one of num"),
        ([{"a": 1.0}] * 120, "a sample is a dict, but an image or numbers were expected; pass a transform"),
        (sparse.csr_matrix(np.eye(120)), "split takes arrays or tensors .* not csr_matrix"),
    ],
)
def test_samples_that_are_no_numbers_are_explained(x: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        split(x, table()[1])


@pytest.mark.parametrize("kind", [np.array, torch.tensor, pd.DataFrame])
def test_labels_are_one_column(kind: Any) -> None:
    x, y = table()
    one_hot = kind(np.eye(6)[np.unique(y, return_inverse=True)[1]])
    with pytest.raises(ValueError, match=r"y has the shape \[120, 6\], but one label for each .* one-hot"):
        split(x, one_hot)
    with pytest.raises(ValueError, match="a label must be a str, int, .* not \\['a'\\]"):
        split(x, [["a"]] * 120)


def test_a_seed_of_numpy_is_a_seed() -> None:
    x, y = table()
    assert torch.equal(split(x, y, seed=np.int64(3)).order[0], split(x, y, seed=3).order[0])
    assert stream("split-digits", seed=np.int64(3)).samples == 1442


def test_missing_labels_and_odd_sources_are_explained() -> None:
    x, y = table()
    with pytest.raises(ValueError, match="y is missing: pass one label for each sample"):
        split(x)
    with pytest.raises(ValueError, match="x has 120 samples but y has 3 labels"):
        split(x, y[:3])
    with pytest.raises(ValueError, match="split takes arrays or tensors x and y, a folder .* not int"):
        split(3)
    with pytest.raises(ValueError, match="the class 'owl' has a single sample"):
        split(np.concatenate([x, x[:1]]), [*y, "owl"])


def test_a_folder_without_images_and_a_broken_image_are_explained(tmp_path: Path, photos: Path) -> None:
    with pytest.raises(ValueError, match="is not a folder"):
        split(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="has no images in subfolders"):
        split(tmp_path)
    (tmp_path / "ant").mkdir()
    good = Image.open(photos / "ant" / "00.png")
    good.save(tmp_path / "ant" / "0.png")
    (tmp_path / "ant" / "1.png").write_bytes(b"no image")
    with pytest.raises(
        ValueError, match=r"the image .*1\.png can't be read \(it is not an image\); remove it"
    ):
        split(tmp_path, tasks=1)
    good.resize((5, 5)).save(tmp_path / "ant" / "1.png")
    with pytest.raises(ValueError, match=r"sample 1 \(.*1\.png\) has the shape \[3, 5, 5\].* pass size="):
        split(tmp_path, tasks=1)


def test_an_image_that_breaks_in_a_worker_process_gives_the_same_sentence(
    tmp_path: Path, photos: Path
) -> None:
    for label in ("ant", "bee"):
        (tmp_path / label).mkdir()
        for i in range(12):
            Image.open(photos / label / f"{i:02}.png").save(tmp_path / label / f"{i}.png")
    s = split(tmp_path, tasks=2, batch_size=4, in_memory=False, workers=1)
    for path in (tmp_path / "bee").iterdir():
        path.write_bytes(b"no image")
    with pytest.raises(ValueError, match="can't be read") as caught:
        list(s)
    assert "\n" not in str(caught.value)
