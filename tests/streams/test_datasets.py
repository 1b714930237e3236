"""Published files are read from all usual folders, and an invalid file gives a clear error."""

from __future__ import annotations

import gzip
import os
import pickle
import struct
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from everlearn.streams import dataset_files, datasets
from everlearn.streams.datasets import DataError, inventory, load, verify

GREY = ["mnist", "fashion-mnist"]
COLOUR = ["cifar10", "cifar100"]
IMAGES = "train-images-idx3-ubyte"


def complaint(name: str, data_dir: Path | None = None) -> str:
    """The error for a dataset that can't be loaded: one line, one sentence."""
    with pytest.raises(DataError) as caught:
        load(name, data_dir)
    said = str(caught.value)
    assert "\n" not in said
    assert ". " not in said
    return said


def assert_is(name: str, loaded: datasets.Dataset, tiny) -> None:
    """The loaded dataset is the tiny one, in the shapes a stream wants."""
    x_train, y_train, x_test, y_test = tiny.arrays[name].values()
    for x, expected in ((loaded.x_train, x_train), (loaded.x_test, x_test)):
        flat_or_channel_first = (
            expected.transpose(0, 3, 1, 2) if name in COLOUR else expected.reshape(len(expected), 784)
        )
        np.testing.assert_array_equal(x, flat_or_channel_first)
        assert x.dtype == np.uint8
        assert x.flags.c_contiguous
    np.testing.assert_array_equal(loaded.y_train, y_train)
    np.testing.assert_array_equal(loaded.y_test, y_test)
    assert loaded.y_train.dtype == np.int64


# ---- digits


def test_digits_need_no_files_and_are_grey_values_up_to_255() -> None:
    digits = load("digits")
    assert digits.x_train.shape == (1442, 64)
    assert digits.x_test.shape == (355, 64)
    assert digits.x_train.dtype == np.uint8
    assert (digits.x_train.min(), digits.x_train.max()) == (0, 255)


def test_a_fifth_of_each_digit_is_for_testing() -> None:
    digits = load("digits")
    of_test, of_train = np.bincount(digits.y_test), np.bincount(digits.y_train)
    np.testing.assert_array_equal(of_test, (of_test + of_train) // 5)


def test_other_digits_than_the_expected_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    altered = {**datasets.CHECKSUMS["digits"]["arrays"], "y_test": {"shape": [355], "sha256": "0"}}
    monkeypatch.setitem(datasets.CHECKSUMS["digits"], "arrays", altered)
    with pytest.raises(DataError, match=r"y_test of digits.*reinstall scikit-learn"):
        verify("digits")


def test_without_scikit_learn_digits_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset_files.importlib.util, "find_spec", lambda name: None)
    assert "pip install scikit-learn" in complaint("digits")


def test_digits_are_those_that_scikit_learn_loads() -> None:
    of_file = datasets._digits_table(dataset_files.locate("digits") / "datasets" / "data" / "digits.csv.gz")
    loaded = datasets._digits_table(Path("/nowhere"))  # where the file is elsewhere, scikit-learn finds it
    np.testing.assert_array_equal(of_file, loaded)


@pytest.mark.parametrize(
    "content", [b"1,2\n", gzip.compress(b"1,2\n3\n", mtime=0), gzip.compress(b"1,2\n", mtime=0)[:-9]]
)
def test_a_damaged_file_of_digits_says_what_to_install(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "digits.csv.gz"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"digits.csv.gz can't be read .*; reinstall scikit-learn"):
        datasets._digits_table(path)


def test_reading_digits_loads_neither_scikit_learn_nor_pillow() -> None:
    code = (
        "import sys, everlearn.streams.fetch; from everlearn.streams.datasets import load; load('digits');"
        "sys.exit('sklearn' in sys.modules or 'PIL' in sys.modules)"
    )
    subprocess.run(
        [sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )


# ---- where datasets are found


@pytest.mark.parametrize("name", GREY)
@pytest.mark.parametrize("folder", ["torchvision", "plain", "."])
@pytest.mark.parametrize("dotted", [False, True])
@pytest.mark.parametrize("gzipped", [False, True])
def test_idx_files_are_found_in_every_usual_layout(name, folder, dotted, gzipped, tiny, tmp_path) -> None:
    torchvision = {"mnist": "MNIST/raw", "fashion-mnist": "FashionMNIST/raw"}[name]
    place = tmp_path / {"torchvision": torchvision, "plain": name, ".": "."}[folder]
    place.mkdir(parents=True, exist_ok=True)
    for file, content in tiny.files(name).items():
        spelt = (file.replace("-idx", ".idx") if dotted else file) + ".gz" * gzipped
        (place / spelt).write_bytes(gzip.compress(content) if gzipped else content)
    assert_is(name, load(name, tmp_path), tiny)


@pytest.mark.parametrize(
    ("name", "folder"), [("cifar10", "cifar-10-batches-py"), ("cifar100", "cifar-100-python")]
)
def test_cifar_batches_are_found_unpacked_loose_and_in_the_archive(name, folder, tiny, tmp_path) -> None:
    tiny.write(name, tmp_path / "unpacked" / folder)
    tiny.write(name, tmp_path / "loose")
    (tmp_path / "packed").mkdir()
    (tmp_path / "packed" / datasets.LAYOUTS[name].archive).write_bytes(tiny.tar(tiny.files(name)))
    for data_dir in ("unpacked", "loose", "packed"):
        assert_is(name, load(name, tmp_path / data_dir), tiny)


def test_a_file_that_was_unzipped_but_kept_its_name_is_read(tiny, tmp_path) -> None:
    tiny.write("mnist", tmp_path)
    (tmp_path / IMAGES).rename(tmp_path / f"{IMAGES}.gz")
    assert_is("mnist", load("mnist", tmp_path), tiny)


def test_folders_are_searched_from_the_argument_to_the_cache(tiny, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("EVERLEARN_DATA", str(tmp_path / "environment"))
    (tmp_path / "argument").mkdir()
    for folder in ("debian", "cache/everlearn", "environment", "argument"):
        tiny.write("fashion-mnist", tmp_path / folder / "fashion-mnist")
        place = verify("fashion-mnist", tmp_path / "argument")
        assert place == tmp_path / folder / "fashion-mnist"


linux_only = pytest.mark.skipif(sys.platform != "linux", reason="the cache folder of Linux")


@linux_only
@pytest.mark.parametrize("variable", [None, "", "/var/caches/me"])
def test_the_cache_folder_on_linux_is_the_one_of_earlier_versions(variable, monkeypatch) -> None:
    if variable is None:
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    else:
        monkeypatch.setenv("XDG_CACHE_HOME", variable)
    earlier = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    assert dataset_files.user_cache_folder() == Path(earlier) / "everlearn"


@linux_only
def test_a_user_without_a_home_folder_has_a_cache_in_the_working_directory(tmp_path, monkeypatch) -> None:
    import pwd

    def nobody(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    monkeypatch.chdir(tmp_path)
    assert dataset_files.user_cache_folder() == tmp_path / ".cache" / "everlearn"


@linux_only
def test_the_cache_is_in_the_home_folder_by_default(tiny, tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    tiny.write("mnist", tmp_path / ".cache" / "everlearn" / "MNIST" / "raw")
    assert_is("mnist", load("mnist"), tiny)


@pytest.mark.parametrize(("name", "twin"), [GREY, GREY[::-1]])
def test_a_folder_with_the_twin_of_a_dataset_is_passed_over(name, twin, tiny, tmp_path) -> None:
    tiny.write(twin, tmp_path / "mine")
    assert f"mine holds {twin}" in complaint(name, tmp_path / "mine")
    tiny.write(name, tmp_path / "cache" / "everlearn")
    assert_is(name, load(name, tmp_path / "mine"), tiny)


def test_a_dataset_is_read_once(tiny, tmp_path) -> None:
    tiny.write("mnist", tmp_path / "mnist")
    assert load("mnist", str(tmp_path / "mnist" / "..")) is load("mnist", tmp_path)


@pytest.mark.parametrize("name", GREY + COLOUR)
def test_torch_takes_the_arrays_without_a_copy_or_a_warning(name, tiny, tmp_path) -> None:
    torch = pytest.importorskip("torch")
    tiny.write(name, tmp_path)
    loaded = load(name, tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for array in (loaded.x_train, loaded.y_train, loaded.x_test, loaded.y_test):
            assert torch.from_numpy(array).is_contiguous()


def test_verify_reads_the_files_again(tiny, tmp_path) -> None:
    tiny.write("mnist", tmp_path)
    load("mnist", tmp_path)
    (tmp_path / IMAGES).write_bytes(b"")
    with pytest.raises(DataError, match=IMAGES):
        verify("mnist", tmp_path)


def test_the_inventory_says_what_is_where(tiny, tmp_path) -> None:
    tiny.write("cifar100", tmp_path)
    tiny.write("mnist", tmp_path)
    entries = {entry.name: entry for entry in inventory(tmp_path)}
    assert list(entries) == list(datasets.NAMES)
    assert entries["cifar100"] == datasets.Entry("cifar100", tmp_path, train=10, test=2, classes=100)
    assert entries["mnist"].place == tmp_path
    assert entries["fashion-mnist"].place is None
    assert entries["digits"].train == 1442


# ---- missing files


@pytest.mark.parametrize("name", GREY + COLOUR)
def test_a_missing_dataset_says_what_is_wanted_where_it_was_sought_and_how_to_get_it(
    name, tiny, tmp_path
) -> None:
    said = complaint(name, tmp_path)
    assert (IMAGES if name in GREY else f"{name[:5]}-{name[5:]}-python.tar.gz") in said
    assert str(tmp_path) in said
    assert str(tmp_path / "cache" / "everlearn") in said
    assert f"`everlearn data fetch {name}`" in said


def test_an_incomplete_dataset_says_which_file_it_lacks(tiny, tmp_path) -> None:
    tiny.write("mnist", tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    assert f"{tmp_path} lacks t10k-labels-idx1-ubyte" in complaint("mnist", tmp_path)


def test_a_data_folder_that_does_not_exist_is_named(tiny, tmp_path) -> None:
    said = complaint("mnist", tmp_path / "nowhere")
    assert f"{tmp_path / 'nowhere'} does not exist" in said
    assert IMAGES in said
    assert "`everlearn data fetch mnist`" in said


def test_a_data_folder_that_is_a_file_is_named(tiny, tmp_path) -> None:
    (tmp_path / "file").write_text("")
    assert "is a file, not a folder" in complaint("cifar10", tmp_path / "file")


def test_folders_named_like_files_are_not_taken_for_cifar100(tiny, tmp_path) -> None:
    for folder in ("train", "test", "meta"):
        (tmp_path / folder).mkdir()
    assert "cifar100 was not found" in complaint("cifar100", tmp_path)


def test_a_misspelt_name_gets_a_suggestion() -> None:
    said = complaint("MINST")
    assert "did you mean 'mnist'?" in said
    assert all(name in said for name in datasets.NAMES)


# ---- broken files


def spoil(tiny, tmp_path: Path, content: bytes, name: str = "mnist", file: str = IMAGES) -> str:
    """The error for a dataset in which one file has this content."""
    tiny.write(name, tmp_path)
    (tmp_path / file).write_bytes(content)
    said = complaint(name, tmp_path)
    assert said.startswith(f"{tmp_path / file} ")
    assert said.endswith(f"; delete it and run `everlearn data fetch {name}`")
    return said


def test_a_truncated_idx_file_is_named_in_one_sentence(tiny, tmp_path) -> None:
    said = spoil(tiny, tmp_path, tiny.files("mnist")[IMAGES][:-1])
    assert "holds 4703 bytes where its header says 4704" in said


def test_an_idx_file_cut_in_its_header_is_named(tiny, tmp_path) -> None:
    for length in range(16):
        assert "is not an IDX file" in spoil(tiny, tmp_path, tiny.files("mnist")[IMAGES][:length])


def test_a_web_page_in_place_of_an_idx_file_is_named(tiny, tmp_path) -> None:
    assert "it starts with b'<!do'" in spoil(tiny, tmp_path, b"<!doctype html><title>Log in</title>")


def test_a_truncated_gzip_file_is_named(tiny, tmp_path) -> None:
    assert "can't be decompressed" in spoil(tiny, tmp_path, gzip.compress(tiny.files("mnist")[IMAGES])[:-9])


def test_a_damaged_gzip_file_is_named(tiny, tmp_path) -> None:
    packed = bytearray(gzip.compress(tiny.files("mnist")[IMAGES]))
    packed[len(packed) // 2] ^= 255
    assert "can't be decompressed" in spoil(tiny, tmp_path, bytes(packed))


def test_labels_in_place_of_images_are_noticed(tiny, tmp_path) -> None:
    said = spoil(tiny, tmp_path, tiny.files("mnist")["train-labels-idx1-ubyte"])
    assert "holds an array of shape [6] where [6, 28, 28] is expected" in said


@pytest.mark.parametrize("file", datasets.LAYOUTS["mnist"].files)
def test_one_altered_byte_in_any_idx_file_is_noticed(file, tiny, tmp_path) -> None:
    content = bytearray(tiny.files("mnist")[file])
    content[-1] ^= 1
    assert "its sha256 differs" in spoil(tiny, tmp_path, bytes(content), file=file)


def test_one_altered_pixel_in_a_cifar_batch_is_noticed(tiny, tmp_path) -> None:
    x, y = tiny.arrays["cifar10"]["x_test"].copy(), tiny.arrays["cifar10"]["y_test"]
    x[1, 31, 31, 2] ^= 1
    said = spoil(tiny, tmp_path, tiny.batch(x, labels=y), "cifar10", "test_batch")
    assert "does not hold the published x_test of cifar10" in said


def test_a_training_batch_of_another_dataset_is_noticed(tiny, tmp_path) -> None:
    tiny.write("cifar10", tmp_path)
    (tmp_path / "data_batch_3").write_bytes((tmp_path / "data_batch_2").read_bytes())
    said = complaint("cifar10", tmp_path)
    assert f"{tmp_path / 'data_batch_1 to data_batch_5'} does not hold the published x_train" in said


def test_a_truncated_cifar_batch_is_named(tiny, tmp_path) -> None:
    content = tiny.files("cifar10")["data_batch_2"]
    assert "is not a CIFAR batch" in spoil(tiny, tmp_path, content[:-50], "cifar10", "data_batch_2")
    assert "is not a CIFAR batch" in spoil(tiny, tmp_path, b"", "cifar10", "data_batch_2")


def test_a_damaged_cifar_batch_never_raises_anything_else(tiny, tmp_path) -> None:
    tiny.write("cifar10", tmp_path)
    valid = (tmp_path / "data_batch_1").read_bytes()
    opcodes = [*range(150), *range(len(valid) - 150, len(valid))]  # between them lie pixels
    rng = np.random.default_rng(0)
    for position in opcodes:
        damaged = bytearray(valid)
        damaged[position] ^= rng.integers(1, 256)
        (tmp_path / "data_batch_1").write_bytes(damaged)
        try:
            loaded = datasets.read("cifar10", tmp_path)
        except DataError:
            continue
        assert_is("cifar10", loaded, tiny)  # that byte carried no meaning


@pytest.mark.parametrize("archive", [b"<!doctype html>", b"", b"\x1f\x8b\x08\x00garbage"])
def test_an_archive_that_is_none_is_named(archive, tiny, tmp_path) -> None:
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(archive)
    said = complaint("cifar10", tmp_path)
    assert "cifar-10-python.tar.gz is not a complete archive" in said
    assert "delete it and run `everlearn data fetch cifar10`" in said


def test_a_truncated_archive_is_named(tiny, tmp_path) -> None:
    archive = tiny.tar(tiny.files("cifar100"))
    (tmp_path / "cifar-100-python.tar.gz").write_bytes(archive[: len(archive) // 2])
    assert "cifar-100-python.tar.gz is not a complete archive" in complaint("cifar100", tmp_path)


def test_an_archive_that_lacks_a_batch_says_which(tiny, tmp_path) -> None:
    files = tiny.files("cifar10")
    del files["data_batch_4"]
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(tiny.tar(files))
    assert "cifar-10-python.tar.gz lacks data_batch_4" in complaint("cifar10", tmp_path)


# ---- pickles


class Call:
    """Pickles as a call of any function."""

    def __init__(self, function, *arguments) -> None:
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def test_a_pickle_that_calls_a_function_is_refused_and_not_run(tiny, tmp_path) -> None:
    harm = tmp_path / "harm"
    batch = pickle.dumps({"data": Call(os.system, f"touch {harm}")}, protocol=2)
    said = spoil(tiny, tmp_path, batch, "cifar10", "data_batch_1")
    assert f"holds {os.system.__module__}.system, which is not data" in said
    assert not harm.exists()


@pytest.mark.parametrize(
    "forgery",
    [
        Call(np.ndarray, (1,), "O", b"12345678"),  # numpy itself would follow these bytes as an address
        Call(np.dtype, "O"),
        np.array([None]),
    ],
)
def test_a_pickle_cannot_make_arrays_of_objects(forgery, tiny, tmp_path) -> None:
    batch = pickle.dumps({"data": forgery}, protocol=2)
    spoil(tiny, tmp_path, batch, "cifar10", "data_batch_1")


def python2_batch(rows: np.ndarray, labels: list[int]) -> bytes:
    """A batch as the publisher's Python 2 wrote it, opcode by opcode."""

    def text(word: bytes) -> bytes:
        return b"U" + bytes([len(word)]) + word

    def number(value: int) -> bytes:
        return b"J" + struct.pack("<i", value)

    empty = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n"
        + number(0)
        + b"\x85"
        + text(b"b")
        + b"\x87R"
    )
    uint8 = b"cnumpy\ndtype\n" + text(b"u1") + number(0) + number(1) + b"\x87R"
    uint8 += b"(" + number(3) + text(b"|") + b"NNN" + number(-1) + number(-1) + number(0) + b"tb"
    shape = number(len(rows)) + number(3072) + b"\x86"
    pixels = b"T" + struct.pack("<i", rows.size) + rows.tobytes()
    data = empty + b"(" + number(1) + shape + uint8 + b"\x89" + pixels + b"tb"
    listed = b"](" + b"".join(map(number, labels)) + b"e"
    return b"\x80\x02}(" + text(b"data") + data + text(b"labels") + listed + b"u."


def test_a_batch_written_by_python_2_is_read(tiny, tmp_path) -> None:
    tiny.write("cifar10", tmp_path)
    x, y = tiny.arrays["cifar10"]["x_test"], tiny.arrays["cifar10"]["y_test"]
    rows = np.ascontiguousarray(x.transpose(0, 3, 1, 2)).reshape(2, 3072)
    (tmp_path / "test_batch").write_bytes(python2_batch(rows, y.tolist()))
    assert pickle.loads((tmp_path / "test_batch").read_bytes(), encoding="latin1")["labels"] == y.tolist()
    assert_is("cifar10", load("cifar10", tmp_path), tiny)


# ---- the real ones


def test_the_real_mnist_is_read(mnist_dir) -> None:
    mnist = load("mnist", mnist_dir)
    assert mnist.x_train.shape == (60000, 784)
    assert mnist.x_test.shape == (10000, 784)
    assert mnist.x_train.mean() / 255 == pytest.approx(0.1307, abs=1e-4)
    assert mnist.y_train[:5].tolist() == [5, 0, 4, 1, 9]


def test_the_real_cifar10_is_read(cifar10_dir) -> None:
    cifar10 = load("cifar10", cifar10_dir)
    assert cifar10.x_train.shape == (50000, 3, 32, 32)
    assert cifar10.x_test.shape == (10000, 3, 32, 32)
    per_channel = cifar10.x_train.mean(axis=(0, 2, 3)) / 255
    np.testing.assert_allclose(per_channel, [0.4914, 0.4822, 0.4465], atol=1e-4)
    assert [cifar10.classes[label] for label in cifar10.y_train[:3]] == ["frog", "truck", "truck"]
