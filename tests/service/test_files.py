"""`everlearn observe` and `everlearn predict`: files are checked before anything is sent, and learnt once."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from running import running, small

from everlearn import Client
from everlearn.cli import main, observe
from everlearn.service import files
from everlearn.service.limits import Limits

ROWS = [{"x": [1.0, 0.0], "y": "up"}, {"x": [0.0, 1.0], "y": "down"}] * 10


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with running(tmp_path_factory.mktemp("files")) as service:
        yield service


def jsonl(path, rows=ROWS):
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return str(path)


def table(path, frame):
    frame.to_csv(path, index=False)
    return str(path)


def orders(rows=20):
    kinds = [("NO", 10.0, "fine"), ("IT", 300.0, "fraud")] * (rows // 2)
    return pd.DataFrame(kinds, columns=["country", "amount", "label"]).assign(id=range(rows))


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        (
            "null.jsonl",
            '{"x": [1, 2], "y": 0}\n\n{"x": [1, null], "y": 0}',
            "line 3 of {} has no value, or NaN,",
        ),
        ("nan.jsonl", '{"x": [1, 2], "y": 0}\n{"x": [NaN, 2], "y": 0}', "line 2 of {} has no value, or NaN,"),
        (
            "big.jsonl",
            '{"x": [1, 2], "y": 0}\n{"x": [1e13, 2], "y": 0}',
            "line 2 of {} has 1e+13, which is too",
        ),
        ("label.jsonl", '{"x": [1], "y": 0}\n{"x": [1], "y": null}', "line 2 of {} has no label"),
        ("odd.jsonl", '{"x": [1], "y": 0}\n{"x": [1], "y": {"a": 1}}', "line 2 of {}: y has"),
        (
            "some.jsonl",
            '{"x": [1], "y": 0}\n{"x": [1]}',
            "line 2 of {} and those before it: only some have y",
        ),
        ("other.jsonl", '{"x": {"a": 1}, "y": 0}\n{"x": [1], "y": 0}', "line 2 of {} has other columns"),
        ("hole.jsonl", '{"x": {"a": 1}, "y": 0}\n{"x": {"a": null}, "y": 0}', "line 2 of {} has no value"),
        ("label.csv", "a,y\n1,up\n2,\n", "line 3 of {} has no label"),
        ("id.csv", "a,y,id\n1,up,7\n2,up,\n", "line 3 of {} has no id in the column id"),
        ("hole.csv", "a,y\n1,up\n,up\n", "line 3 of {} has no value in the column a"),
        (
            "word.csv",
            "a,y\n1,up\n2,up\nn/a,up\n",
            "line 4 of {} has 'n/a', which is not a number, in the column a",
        ),
        ("fields.csv", 'a,y\n"1\n",up\n2\n', "line 4 of {} has 1 fields, but the header 2"),
        ("twice.csv", "a,a,y\n1,2,up\n", "{} has two columns named 'a'"),
        ("alone.csv", "y\nup\n", "{} has no columns besides labels and ids"),
        ("empty.csv", "", "{} is empty: a CSV file begins with a header"),
        ("bytes.csv", b"a,y\n1,\xff\n", "{} is not text in UTF-8: it has the byte 0xff"),
        ("bytes.jsonl", b'{"x": [1], "y": "\xfe"}', "{} is not text in UTF-8: it has the byte 0xfe"),
        ("none.csv", "a,y\n", "{} has no samples"),
        ("plain.npz", b"PK", "{} is not a valid npz file"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_before_anything_is_sent(
    service, tmp_path, capsys, name, content, sentence
):
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    before = service.model.live.position
    assert main(["observe", str(path), "--url", service.url, "--batch-size", "1"]) == 2
    said = capsys.readouterr().err
    assert sentence.format(path) in said
    assert len(said.splitlines()) == 1
    assert service.model.live.position == before


def test_the_hint_to_name_the_labels_comes_only_without_them(tmp_path, capsys):
    path = tmp_path / "a.csv"
    path.write_text("a,state\n1,up\n")
    with running(tmp_path) as service:
        service.model.live.observe(torch.eye(2), ["up", "down"])
        for words, hint in (([], True), (["--label", "a"], False)):
            assert main(["observe", str(path), "--url", service.url, *words]) == 2
            said = capsys.readouterr().err
            assert "line 2 of" in said
            assert ("name the column of labels with --label" in said) is hint


def test_an_empty_label_follows_the_setting_of_the_learner(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a,b,y\n1,2,up\n2,3,\n3,1,down\n")
    with running(tmp_path, learner=lambda: small(missing_labels="skip")) as service:
        assert main(["observe", str(path), "--url", service.url]) == 0
        live = service.model.live
        assert (live.classes, live.learner.unlabelled) == (["up", "down"], 1)


def test_a_file_that_stops_half_way_says_where_and_the_same_command_learns_nothing_twice(tmp_path, capsys):
    rows = [*ROWS, {"x": [1.0, 1.0], "y": "third"}, *ROWS]
    path = jsonl(tmp_path / "a.jsonl", rows)
    with running(tmp_path, limits=Limits(classes=2)) as service:
        words = ["observe", path, "--url", service.url]
        for _ in range(2):
            assert main(words) == 2
            said = capsys.readouterr().err
            assert f"stopped at line 21 of {path}, 20 samples learnt: " in said
            assert "the same command goes on from there, or --skip 20 if you change the file" in said
            assert service.model.live.learner.samples == 20
        jsonl(tmp_path / "a.jsonl", [*ROWS, *ROWS])
        assert main([*words, "--skip", "20"]) == 0
        assert service.model.live.learner.samples == 40


def test_a_file_is_learnt_once_unless_it_is_to_be_learnt_again(tmp_path, capsys):
    path = jsonl(tmp_path / "a.jsonl")
    with running(tmp_path) as service:
        words = ["observe", path, "--url", service.url]
        assert main(words) == 0
        assert "20 samples in " in capsys.readouterr().out
        assert main(words) == 0
        assert "was learnt before, and is not learnt twice; --again" in capsys.readouterr().out
        assert service.model.live.learner.samples == 20
        assert main([*words, "--again"]) == 0
        assert service.model.live.learner.samples == 40


def test_an_interrupted_command_says_how_far_it_came(tmp_path, capsys, monkeypatch):
    path = jsonl(tmp_path / "a.jsonl")
    real = Client.observe

    def interrupted(self, x, *args, **options):
        if self.position:
            raise KeyboardInterrupt
        return real(self, x, *args, **options)

    monkeypatch.setattr(Client, "observe", interrupted)
    with running(tmp_path) as service:
        assert main(["observe", path, "--url", service.url]) == 130
        assert f"stopped at line 11 of {path}, 10 samples learnt; the same" in capsys.readouterr().err


def test_a_command_that_is_interrupted_after_the_last_batch_says_so(tmp_path, capsys, monkeypatch):
    path = jsonl(tmp_path / "a.jsonl")
    send = observe.send

    def interrupted(*given):
        send(*given)
        raise KeyboardInterrupt

    monkeypatch.setattr(observe, "send", interrupted)
    with running(tmp_path) as service:
        assert main(["observe", path, "--url", service.url]) == 130
        assert f"stopped after all of {path} was learnt" in capsys.readouterr().err


def test_batches_that_the_service_no_longer_recognises_are_to_be_skipped(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(observe, "REMEMBERED", 1)
    path = jsonl(tmp_path / "a.jsonl", [*ROWS, {"x": [1.0, 1.0], "y": "third"}])
    with running(tmp_path, limits=Limits(classes=2)) as service:
        assert main(["observe", path, "--url", service.url]) == 2
        assert capsys.readouterr().err.endswith("go on with --skip 20\n")


def test_one_sample_is_one_sample(tmp_path, capsys):
    path = jsonl(tmp_path / "a.jsonl", ROWS[:1])
    with running(tmp_path) as service:
        assert main(["observe", path, "--url", service.url]) == 0
        assert capsys.readouterr().out.startswith("1 sample in ")
        assert main(["predict", path, "--url", service.url]) == 0
        assert capsys.readouterr().err == "accuracy 1.0000 on 1 sample\n"


@pytest.mark.parametrize("skip", ["-1", "20"])
def test_a_skip_that_leaves_nothing_is_refused(service, tmp_path, capsys, skip):
    path = jsonl(tmp_path / "a.jsonl")
    assert main(["observe", path, "--url", service.url, "--skip", skip]) == 2
    assert "skip" in capsys.readouterr().err


def test_a_csv_teaches_as_the_frame_does_and_its_columns_count_by_name(tmp_path, capsys):
    frame = orders()
    path = table(tmp_path / "a.csv", frame)
    local = small()
    for start in (0, 10):
        local.observe(
            frame[["country", "amount"]][start : start + 10], list(frame["label"])[start : start + 10]
        )
    with running(tmp_path) as service:
        assert main(["observe", path, "--url", service.url]) == 0
        learner = service.model.live.learner
        assert learner.columns == local.columns
        state, expected = learner.state_dict(), local.state_dict()
        assert all(torch.equal(state[key], expected[key]) for key in expected if key != "meta")
        answers = []
        for columns in (["country", "amount"], ["amount", "country"]):
            turned = table(tmp_path / "b.csv", frame[columns])
            capsys.readouterr()
            assert main(["predict", turned, "--url", service.url, "--confidence"]) == 0
            answers.append(capsys.readouterr().out)
        assert answers[0] == answers[1]
        assert [json.loads(line)["label"] for line in answers[0].splitlines()] == local.predict(
            frame[["country", "amount"]]
        )


def test_a_csv_for_a_model_without_names_is_rows_of_numbers(tmp_path):
    path = table(tmp_path / "a.csv", pd.DataFrame({"first": [1.0, 0.0], "second": [0.0, 1.0], "y": [0, 1]}))
    with running(tmp_path) as service:
        service.model.live.observe(np.eye(2, dtype=np.float32), [0, 1])
        assert main(["observe", path, "--url", service.url]) == 0
        assert (service.model.live.learner.samples, service.model.live.learner.columns) == (4, None)


def test_numbers_that_are_text_are_named(tmp_path):
    frame = pd.DataFrame({"postcode": [150, 152], "flag": [True, False], "y": ["a", "b"]})
    path = table(tmp_path / "a.csv", frame)
    with running(tmp_path) as service:
        assert main(["observe", path, "--url", service.url, "--text", "postcode"]) == 0
        assert service.model.live.learner.columns.categories == ({"150": 0, "152": 1}, None)
        assert main(["observe", path, "--url", service.url, "--again"]) == 0  # as the model knows the column
        assert service.model.live.learner.columns.categories == ({"150": 0, "152": 1}, None)


def test_names_and_categories_that_are_numbers_in_the_model_are_so_in_a_csv(tmp_path, capsys):
    frame = pd.DataFrame({0: [1.0, 2.0] * 5, 1: pd.Categorical([7, 8] * 5), "y": ["a", "b"] * 5})
    path = table(tmp_path / "a.csv", frame)
    with running(tmp_path) as service, Client(service.url) as client:
        client.observe(frame[[0, 1]], frame["y"])
        assert main(["observe", path, "--url", service.url]) == 0
        assert service.model.live.learner.columns.names == (0, 1)
        assert service.model.live.learner.columns.categories[1] == {7: 0, 8: 1}


def test_json_lines_may_begin_with_a_mark_of_their_encoding(tmp_path):
    path = tmp_path / "marked.jsonl"
    path.write_text('{"x": [1, 2]}', encoding="utf-8-sig")
    samples = files.read_samples(path)
    assert samples.x.tolist() == [[1.0, 2.0]]


@pytest.fixture(scope="module")
def of_bytes(tmp_path_factory):
    """A service whose model began with bytes."""
    with running(tmp_path_factory.mktemp("bytes")) as service:
        service.model.live.observe(torch.tensor([[0, 255], [255, 0]], dtype=torch.uint8), ["up", "down"])
        yield service


@pytest.mark.parametrize(("name", "content"), [("a.jsonl", '{"x": [9, 200]}'), ("a.csv", "r,g\n9,200\n")])
def test_whole_numbers_in_a_file_of_text_are_bytes_for_a_model_of_bytes(
    of_bytes, tmp_path, capsys, name, content
):
    (tmp_path / name).write_text(content)
    assert main(["predict", str(tmp_path / name), "--url", of_bytes.url]) == 0
    assert json.loads(capsys.readouterr().out) == {"label": "up"}


@pytest.mark.parametrize("value", [-1, 256, 0.5])
def test_numbers_that_are_no_bytes_are_said_with_their_line(of_bytes, tmp_path, capsys, value):
    path = jsonl(tmp_path / "a.jsonl", [{"x": [9, 200]}, {"x": [0, value]}])
    assert main(["predict", path, "--url", of_bytes.url]) == 2
    words = f"line 2 of {path} has {value} in x, but the model takes bytes: whole numbers from 0 to 255"
    assert words in capsys.readouterr().err


def test_json_lines_may_be_objects(tmp_path, capsys):
    rows = [
        {"x": {"amount": 1.5, "country": "NO"}, "y": "a"},
        {"x": {"country": None, "amount": 2}, "y": "b"},
    ]
    path = jsonl(tmp_path / "a.jsonl", rows)
    with running(tmp_path) as service:
        assert main(["observe", path, "--url", service.url]) == 0
        assert service.model.live.learner.columns.names == ("amount", "country")
        assert main(["predict", path, "--url", service.url]) == 0
        assert len(capsys.readouterr().out.splitlines()) == 3


def test_a_token_that_may_only_learn_is_enough_to_observe_a_file(tmp_path, monkeypatch):
    from everlearn.service.tokens import Tokens

    tokens = Tokens(tmp_path / "tokens.json")
    monkeypatch.setenv("EVERLEARN_TOKEN", tokens.create("camera", ["learn"]))
    path = jsonl(tmp_path / "a.jsonl")
    with running(tmp_path, tokens=tokens) as service:
        assert main(["observe", path, "--url", service.url]) == 0
        assert service.model.live.learner.samples == 20
