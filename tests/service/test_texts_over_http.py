"""Texts over HTTP, for a model with an encoder: the learner of the service sees them as it does locally."""

import json
import time
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from running import running, small

from everlearn import Client, CoPE, open_live
from everlearn.cli import main
from everlearn.service.consumer import Consumer
from everlearn.service.files import CsvFlags, read_samples
from everlearn.service.limits import Limits
from everlearn.service.sources import Message
from everlearn.service.view import dashboard_of

TEXTS = ["my card is lost", "a loan for a house", "the card is broken"]
LABELS = ["card", "loan", "card"]
TAKES = {"columns": None, "shape": [3], "encoder": "own:letters", "missing_labels": "refuse"}


def letters(texts):
    """How often some letters are in a text."""
    return [[float(text.count(letter)) for letter in "aco"] for text in texts]


def taught_by_texts(**settings):
    return CoPE(encoder=letters, device="cpu", **{"memory_size": 20, **settings})


def same(learner, other):
    state, expected = learner.state_dict(), other.state_dict()
    return all(torch.equal(state[key], expected[key]) for key in expected if key != "meta")


@pytest.mark.parametrize(
    "texts",
    [
        TEXTS,
        tuple(TEXTS),
        np.array(TEXTS),
        np.array(TEXTS, object),
        np.array(TEXTS, np.dtypes.StringDType()),
        pd.Series(TEXTS),
        pl.Series(TEXTS),
    ],
    ids=["list", "tuple", "array", "array of objects", "array of strings", "pandas", "polars"],
)
def test_texts_of_the_client_teach_as_local_ones_do(tmp_path, texts):
    local = taught_by_texts()
    with running(tmp_path, learner=taught_by_texts) as service, Client(service.url) as client:
        for _ in range(3):
            client.observe(texts, LABELS)
            local.observe(texts, LABELS)
        assert same(service.model.live.learner, local)
        assert client.predict(texts, min_position=client.position) == local.predict(texts)
        client.ask(["a", "b", "c"], texts)
        client.tell(["a", "b", "c"], LABELS)
        local.observe(texts, LABELS)
        assert same(service.model.live.learner, local)
        assert client.input()["encoder"] == "own:letters"


@pytest.mark.parametrize(
    ("x", "sentence"),
    [
        (["a card", 3], "or texts"),
        (["a card", None], "x has a null"),
        (["a card", ["nested"]], "or texts"),
        ([{"text": "a card"}], "has an encoder, which takes one sample each, such as a text, not columns"),
        (["x" * 41], "a sample has 41 characters, above 40"),
        ([], "x has no samples"),
    ],
)
def test_what_an_encoder_does_not_take_is_one_sentence_and_changes_nothing(tmp_path, x, sentence):
    limits = Limits(sample=40)
    with running(tmp_path, learner=taught_by_texts, limits=limits) as service:
        answer = service.http.post(f"{service.url}/v1/observe", json={"x": x, "y": ["a"] * len(x)})
        assert answer.status_code == (422 if "encoder" in sentence else 400)  # values, or a body
        assert sentence in answer.json()["detail"]
        assert service.model.live.position == 0


def test_a_model_without_an_encoder_says_what_texts_need(tmp_path):
    with running(tmp_path, learner=small) as service, Client(service.url) as client:
        with pytest.raises(
            ValueError, match="x has texts, but model has no encoder: create a model with one"
        ):
            client.observe(TEXTS, LABELS)
        assert service.model.live.position == 0
        assert client.input()["encoder"] is None


def test_a_wrong_answer_about_a_text_is_on_the_dashboard(tmp_path):
    long = "my card is lost, " * 20
    with running(tmp_path, learner=taught_by_texts) as service, Client(service.url) as client:
        client.observe(TEXTS, LABELS)
        client.observe([long, "a <b>card</b>"], ["loan", "loan"])
        values = [each["values"] for each in dashboard_of(service.model)["mistakes"]]
    assert values == ["a <b>card</b>", long[:120] + " …"]


def test_the_vector_of_a_text_that_was_asked_is_not_shown(tmp_path):
    with running(tmp_path, learner=taught_by_texts) as service, Client(service.url) as client:
        client.observe(TEXTS, LABELS)
        client.ask(["a"], ["my card"])
        client.tell(["a"], ["loan"])
        (shown,) = dashboard_of(service.model)["mistakes"]
        assert (shown["id"], shown["label"], shown["answer"]) == ("a", "loan", "card")
        assert not {"values", "picture"} & set(shown)


class Letters:
    """A source with messages whose samples are texts."""

    name = "letters"

    def __init__(self, messages):
        self.messages = messages

    def read(self, position, most, seconds):
        start = 0 if position is None else position
        return [Message(i + 1, self.messages[i]) for i in range(start, min(start + most, len(self.messages)))]

    def close(self):
        """Nothing to close."""


def test_messages_with_texts_are_learnt_and_others_are_skipped(tmp_path):
    messages = [{"x": text, "y": label} for text, label in zip(TEXTS, LABELS, strict=True)]
    local = taught_by_texts()
    local.observe(TEXTS, LABELS)
    with open_live(tmp_path / "model", taught_by_texts()) as live:
        consumer = Consumer(live, Letters([*messages, {"x": 3, "y": "card"}]), batch_size=3)
        consumer.start()
        patience = time.monotonic() + 60
        while consumer.applied + consumer.skipped < 4 and time.monotonic() < patience:
            time.sleep(0.01)
        consumer.close()
        assert (consumer.applied, consumer.skipped) == (3, 1)
        assert same(live.learner, local)


def written(folder, name, content):
    path = folder / name
    path.write_text(content, encoding="utf-8")
    return path


def test_files_hold_texts(tmp_path):
    csv = written(
        tmp_path,
        "mail.csv",
        "text,label\n" + "".join(f"{t},{y}\n" for t, y in zip(TEXTS, LABELS, strict=True)),
    )
    lines = [json.dumps({"x": text, "y": label}) for text, label in zip(TEXTS, LABELS, strict=True)]
    jsonl = written(tmp_path, "mail.jsonl", "\n".join(lines))
    npz = tmp_path / "mail.npz"
    np.savez(npz, x=np.array(TEXTS), y=np.array(LABELS))
    for path in (csv, jsonl, npz):
        samples = read_samples(path, takes=TAKES)
        assert samples.x == TEXTS
        assert samples.y == LABELS


def test_a_column_of_texts_is_named_where_there_are_several(tmp_path):
    path = written(tmp_path, "mail.csv", "subject,body,label\nhelp,12,card\nhi,13,loan\n")
    assert read_samples(path, CsvFlags(text=["subject"]), TAKES).x == ["help", "hi"]
    assert read_samples(path, CsvFlags(text=["body"]), TAKES).x == ["12", "13"]
    with pytest.raises(ValueError, match="in the column subject; name the column of texts with --text"):
        read_samples(path, takes=TAKES)
    with pytest.raises(ValueError, match="takes one text per sample: name one column"):
        read_samples(path, CsvFlags(text=["subject", "body"]), TAKES)
    with pytest.raises(
        ValueError, match="the sample in line 2 of .* has numbers, but the first one has a text"
    ):
        read_samples(written(tmp_path, "mixed.jsonl", '{"x": "a"}\n{"x": [1, 2]}\n'), takes=TAKES)


def test_rows_of_numbers_reach_an_encoder_of_rows(tmp_path):
    path = written(tmp_path, "rows.csv", "a,b,label\n1,2,card\n3,4,loan\n")
    for shape in (None, [3]):
        np.testing.assert_array_equal(read_samples(path, takes=TAKES | {"shape": shape}).x, [[1, 2], [3, 4]])


def test_serve_makes_a_model_with_an_encoder_that_opens_again_by_itself(tmp_path, monkeypatch):
    pytest.importorskip("wordllama", reason="needs wordllama: pip install wordllama")
    served = {}
    monkeypatch.setattr(
        "everlearn.service.run.serve", lambda folders, learner, **_: served.update(learner=learner)
    )
    folder = tmp_path / "mail"
    assert main(["serve", str(folder), "--encoder", "wordllama", "--memory-size", "30"]) == 0
    assert served["learner"].network_name == "identity"
    with open_live(folder, served["learner"]) as live:
        live.observe(TEXTS, LABELS)
    with open_live(folder) as live:
        assert live.predict(["where is my card", "a new loan"]) == ["card", "loan"]
    assert main(["serve", str(folder)]) == 0
    assert served["learner"] is None


def test_serve_refuses_an_encoder_that_would_be_missing_later(tmp_path, capsys, monkeypatch):
    Path(tmp_path / "mine.py").write_text("def letters(texts):\n    return [[1.0] for _ in texts]\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["serve", str(tmp_path / "mail"), "--encoder", "mine:letters"]) != 0
    assert "mine:letters would not be loaded by itself" in capsys.readouterr().err
    assert not (tmp_path / "mail").exists()
