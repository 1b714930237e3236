"""The client: the methods of a live learner, arrays and tensors, retries that are applied once."""

import asyncio
import json
import time

import httpx
import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from running import running, small

import everlearn
from everlearn import AsyncClient, Client
from everlearn.cli import main
from everlearn.service import served
from everlearn.service.client import ServiceError
from everlearn.service.tokens import Tokens

X = np.eye(3, dtype=np.float32)[:2]
Y = ["left", ("right", 1)]


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with running(tmp_path_factory.mktemp("client")) as service:
        yield service


@pytest.mark.parametrize(
    "as_type", [np.asarray, torch.from_numpy, np.ndarray.tolist, lambda x: x.astype(float)]
)
def test_arrays_tensors_and_lists_give_the_same_answers(service, as_type):
    x = as_type(X)
    with Client(service.url) as client:
        before = client.status()["samples"]
        client.observe(x, Y, ids=["a", "b"])
        assert client.status()["samples"] == before + 2
        live = service.model.live
        assert client.predict(x, min_position=client.position) == live.predict(X)
        labels, shares = client.predict(x, confidence=True)
        rows = client.predict_proba(x)
        assert type(rows) is (torch.Tensor if isinstance(x, torch.Tensor) else np.ndarray)
        np.testing.assert_allclose(np.asarray(rows), live.predict_proba(X), atol=1e-6)
        np.testing.assert_allclose(np.asarray(rows).max(1), np.asarray(shares))
        assert labels == live.predict(X)


def test_a_position_that_is_not_reached_is_an_error_and_not_tried_again(service, monkeypatch):
    monkeypatch.setattr(served, "PATIENCE", 0.05)
    with Client(service.url, retries=10**6) as client:
        position = client.observe(X, Y)
        with pytest.raises(
            ServiceError, match=f"no change that waits reaches the min_position {position + 5}"
        ):
            client.predict(X, min_position=position + 5)


def test_every_operation(service):
    with Client(service.url) as client:
        client.observe(X, Y, ids=["x", "y"])
        assert client.ask(["q1", 7], X) == service.model.live.predict(X)
        labels, shares = client.ask(["q2", 8], X, confidence=True)
        assert len(labels) == len(shares) == 2
        told = client.tell(["q1", 7, "no"], ["left", "left", "left"])
        assert (told.learnt, told.missing) == (["q1", 7], ["no"])
        assert sorted(map(str, told.right + told.wrong)) == ["7", "q1"]
        assert client.correct(["x"], ["third"])["exemplars"] >= 1
        assert client.delete(["x"])["exemplars"] >= 1
        assert [event["event"] for event in client.history()["events"][-2:]] == ["corrected", "deleted"]
        client.observe(X, ["gone", "gone"])
        client.forget("gone")
        assert "gone" not in client.classes()
        assert client.classes() == service.model.live.classes
        assert client.save() == client.position == service.model.live.position
        assert client.history()["events"]


def test_the_asynchronous_client_does_the_same(service):
    async def talk():
        async with AsyncClient(service.url) as client:
            await asyncio.gather(*(client.observe(X, Y) for _ in range(8)))
            return await client.predict(X, min_position=client.position), await client.classes()

    before = service.model.live.learner.samples
    predicted, classes = asyncio.run(talk())
    live = service.model.live
    assert (predicted, classes) == (live.predict(X), live.classes)
    assert live.learner.samples == before + 16


class Unreliable(httpx.BaseTransport):
    """Delivers every request, but loses answers, or says that the service is busy."""

    def __init__(self, losses):
        self.losses, self.real = list(losses), httpx.HTTPTransport()

    def handle_request(self, request):
        loss = self.losses.pop(0) if self.losses else None
        if loss == "busy":
            return httpx.Response(429, headers={"Retry-After": "0"}, json={"detail": "busy"})
        answer = self.real.handle_request(request)
        if loss == "lost":
            answer.close()
            raise httpx.ReadError("the connection was reset", request=request)
        return answer

    def close(self):
        self.real.close()


def test_lost_answers_are_retried_and_the_change_is_applied_once(service):
    before = service.model.live.learner.samples
    with Client(service.url, transport=Unreliable(["lost", "busy", "lost"])) as client:
        client.observe(X, Y)
        assert service.model.live.learner.samples == before + 2
    lossy = Client(service.url, transport=Unreliable(["lost"] * 9), retries=1)
    with lossy as client, pytest.raises(ServiceError, match="is `everlearn serve` running"):
        client.observe(X, Y)
    assert service.model.live.learner.samples == before + 4


def test_mistakes_are_errors_in_words(service, tmp_path):
    with Client(service.url) as client, pytest.raises(ValueError, match="but the network takes"):
        client.predict(np.zeros((1, 9), np.float32))
    with (
        Client(service.url, model="nobody") as client,
        pytest.raises(ServiceError, match="no model 'nobody'") as found,
    ):
        client.classes()
    assert found.value.status == 404
    with (
        Client("http://127.0.0.1:9", retries=0) as client,
        pytest.raises(ServiceError, match="can't be reached"),
    ):
        client.classes()


def test_a_token_comes_from_the_environment(tmp_path, monkeypatch):
    tokens = Tokens(tmp_path / "tokens.json")
    secret = tokens.create("me", ["predict"])
    with running(tmp_path, tokens=tokens) as service:
        with Client(service.url) as client, pytest.raises(PermissionError, match="a valid token is needed"):
            client.classes()
        monkeypatch.setenv("EVERLEARN_TOKEN", secret)
        with Client(service.url) as client:
            assert client.classes() == []
            with pytest.raises(PermissionError, match="the token me lacks the scope learn"):
                client.observe(X, Y)


@pytest.mark.parametrize("token", ["evl_tök", "evl_a\nX-Name: b", 7])
def test_a_token_that_no_header_takes_is_refused_at_once_and_not_shown(token):
    with pytest.raises(ValueError, match="^the token is not one that a service knows: give what") as error:
        Client(token=token)
    assert str(token) not in str(error.value)


def test_a_token_read_from_a_file_may_end_with_its_line(tmp_path):
    tokens = Tokens(tmp_path / "tokens.json")
    secret = tokens.create("reader", ["predict"])
    with running(tmp_path, tokens=tokens) as service, Client(service.url, token=f"{secret}\n") as client:
        assert client.status()["position"] == 0


def test_settings_may_be_numbers_of_numpy(service):
    with Client(service.url) as client:
        client.observe(X, Y, ids=["a", "b"], t=np.int64(0))
        assert client.predict(X, confidence=np.bool_(True), min_position=np.int64(1))[0] == Y
        assert client.correct(["a"], Y[:1], rebuild=np.bool_(False))["rebuilt"] is False


def test_files_on_the_command_line(tmp_path, capsys):
    rows = [[1.0, 0.0], [0.0, 1.0]] * 10
    labels = ["up", "down"] * 10
    np.savez(tmp_path / "a.npz", x=np.array(rows, np.float32), y=np.array(labels))
    lines = [
        json.dumps({"x": row, "y": label, "id": i})
        for i, (row, label) in enumerate(zip(rows, labels, strict=True))
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    table = ["first,second,label", *(f"{a},{b},{label}" for (a, b), label in zip(rows, labels, strict=True))]
    (tmp_path / "a.csv").write_text("\n".join(table))
    with running(tmp_path) as service:
        for kind in ("npz", "jsonl", "csv"):
            assert main(["observe", str(tmp_path / f"a.{kind}"), "--url", service.url]) == 0
            assert "20 samples" in capsys.readouterr().out
        assert service.model.live.learner.samples == 60
        plain = small()
        for _ in range(3):
            for start in (0, 10):
                plain.observe(torch.tensor(rows[start : start + 10]), labels[start : start + 10])
        for kind in ("npz", "jsonl", "csv"):
            words = ["predict", str(tmp_path / f"a.{kind}"), "--url", service.url, "--confidence"]
            assert main(words) == 0
            out, err = capsys.readouterr()
            found = [json.loads(line) for line in out.splitlines()]
            assert [line["label"] for line in found] == plain.predict(torch.tensor(rows))
            right = sum(line["label"] == label for line, label in zip(found, labels, strict=True))
            assert f"accuracy {right / 20:.4f} on 20 samples" in err
        assert service.model.live.delete([3]).exemplars == 1  # the ids of the lines
        for name, text, sentence in [
            ("b.csv", "a,b\n1,x\n", "line 2 of"),
            ("b.jsonl", '{"x": [1]}\n{"y": 1}\n', "line 2 of"),
            ("b.txt", "", "must be one of .jsonl, .csv, .npz"),
            ("c.jsonl", '{"x": [1]}\n', "has no labels"),
        ]:
            (tmp_path / name).write_text(text)
            assert main(["observe", str(tmp_path / name), "--url", service.url]) == 2
            assert sentence in capsys.readouterr().err


def test_importing_the_client_loads_no_torch():
    import subprocess
    import sys

    code = "import sys; from everlearn import Client; print('torch' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"
    assert everlearn.Client is Client


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda client: client.observe(X, "ab"), "y is a sequence with one entry for each sample, not 'ab'"),
        (lambda client: client.observe(X, Y, ids="ab"), "ids is a sequence with one entry for each sample"),
        (lambda client: client.observe(X, b"ab"), "y is a sequence"),
        (lambda client: client.observe(X, {"a", "b"}), "y is a sequence"),
        (lambda client: client.observe(X, None), "y is a sequence"),
        (lambda client: client.observe(X, [object(), "a"]), "of type object: an entry is a str, int"),
        (lambda client: client.observe(X, [["a"], ["b"]]), "of type list"),
        (lambda client: client.observe(X, np.array([[0], [1]])), r"y has the shape \[2, 1\]"),
        (lambda client: client.observe(X, torch.zeros(2, 1)), r"y has the shape \[2, 1\]"),
        (lambda client: client.observe(X, pd.DataFrame({"y": ["a", "b"]})), r"y has the shape \[2, 1\]"),
        (lambda client: client.observe(X, pl.DataFrame({"y": ["a", "b"]})), r"y has the shape \[2, 1\]"),
        (lambda client: client.observe(X, Y, ids=pd.DataFrame({"i": [1, 2]})), r"ids has the shape \[2, 1\]"),
        (lambda client: client.ask("ab", X), "ids is a sequence"),
        (lambda client: client.tell("ab", "hl"), "ids is a sequence"),
        (lambda client: client.tell(["a", "b"], "hl"), "y is a sequence"),
        (lambda client: client.delete("abc"), "ids is a sequence"),
        (lambda client: client.correct(["a", "b"], "hl"), "labels is a sequence"),
        (lambda client: client.forget(object()), "of type object"),
        (lambda client: client.predict("ab"), "x must be an array, a tensor, a DataFrame"),
        (lambda client: client.predict([object()]), "x must be an array, a tensor, a DataFrame"),
        (lambda client: client.predict(np.array([["a"]])), "x must be an array, a tensor, a DataFrame"),
        (lambda client: client.predict(X[:0]), "x has no samples; a request takes 1 to"),
        (lambda client: client.predict([]), "x has no samples; a request takes 1 to"),
    ],
)
def test_what_is_no_sequence_of_labels_or_samples_is_refused_in_one_sentence(service, call, sentence):
    before = service.model.live.position
    with Client(service.url) as client, pytest.raises(ValueError, match=sentence):
        call(client)
    assert service.model.live.position == before


@pytest.mark.parametrize(
    "labels",
    [pd.Series(["a", "b"]), pl.Series(["a", "b"]), np.array(["a", "b"]), ("a", "b"), (each for each in "ab")],
)
def test_labels_may_be_any_sequence(service, labels):
    with Client(service.url) as client:
        client.observe(X, labels)
        assert {"a", "b"} <= set(client.classes())


def test_a_missing_label_of_pandas_is_missing_for_the_service(tmp_path):
    with (
        running(tmp_path, learner=lambda: small(missing_labels="skip")) as service,
        Client(service.url) as client,
    ):
        client.observe(X, [pd.NA, "a"])
        client.observe(X, [float("nan"), "a"])
        assert (client.classes(), service.model.live.learner.unlabelled) == (["a"], 2)


@pytest.mark.parametrize(
    "x",
    [
        list(X),
        [torch.from_numpy(row) for row in X],
        [[np.float32(value) for value in row] for row in X],
        torch.from_numpy(X).to_sparse(),
        X.astype(np.longdouble),
        X.astype(np.uint16),
    ],
)
def test_samples_of_other_types_give_the_same_answers(service, x):
    with Client(service.url) as client:
        client.observe(X, Y)
        np.testing.assert_array_equal(client.predict_proba(x), client.predict_proba(X))


def test_sparse_rows_of_scipy_are_sent_as_dense_ones(service):
    from scipy.sparse import csr_array

    with Client(service.url) as client:
        client.observe(X, Y)
        assert client.predict(csr_array(X)) == client.predict(X)


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8591", "localhost", "ftp://here", "http://", "http://a:99999", None]
)
def test_an_address_that_is_no_url_is_refused_at_once(url):
    with pytest.raises(ValueError, match="the URL of a service is such as http://127.0.0.1:8000, not"):
        Client(url)


def test_labels_are_checked_without_torch():
    import subprocess
    import sys

    code = (
        "import sys; from everlearn import Client\n"
        "try: Client().observe([[1.0]], 'ab')\n"
        "except ValueError: print('torch' in sys.modules)"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"


def test_weights_count_as_those_of_a_local_learner(tmp_path):
    x, y, weights = np.eye(4, dtype=np.float32), ["a", "b", "a", "b"], [1, 0, 2.5, 1]
    local = small()
    with running(tmp_path) as service, Client(service.url) as client:
        for given in (weights, np.array(weights), None):
            client.observe(x, y, sample_weight=given)
            local.observe(x, y, sample_weight=given)
        state, expected = service.model.live.learner.state_dict(), local.state_dict()
        assert all(torch.equal(state[key], expected[key]) for key in expected if key != "meta")
        for wrong in ([1, 2], [1, -1, 1, 1], ["a"] * 4, [True] * 4):
            with pytest.raises(ValueError, match="sample_weight"):
                client.observe(x, y, sample_weight=wrong)
        assert client.status()["batches"] == 3


def test_samples_to_label_are_suggested_as_by_the_live_learner(tmp_path):
    x = np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32)
    with running(tmp_path) as service, Client(service.url) as client:
        assert client.suggest() == []
        client.observe(x[:6], ["a", "b"] * 3)
        client.ask([("valve", i) for i in range(6)], x[6:])
        suggested = client.suggest(3)
        assert suggested == service.model.live.suggest(3)
        assert len(suggested) == 3
        assert len(client.suggest()) == 6
        for wrong in ("-1", "many", "1.5", "9" * 30):
            with pytest.raises(ValueError, match="n must be a number of samples"):
                client.suggest(wrong)


@pytest.mark.parametrize("when", ["Wed, 21 Oct 2015 07:28:00 GMT", "0", "soon", "-1", ""])
def test_a_time_to_wait_may_be_a_date(when):
    answers = [
        httpx.Response(503, headers={"Retry-After": when}),
        httpx.Response(200, json={"classes": ["a"]}),
    ]
    transport = httpx.MockTransport(lambda _: answers.pop(0))
    with Client("http://service", transport=transport) as client:
        assert client.classes() == ["a"]


def test_a_date_in_the_future_is_waited_for_within_bounds():
    from email.utils import formatdate

    client = Client("http://service")
    answer = httpx.Response(503, headers={"Retry-After": formatdate(time.time() + 3600, usegmt=True)})
    assert 10 <= client._wait(0, answer, None) <= 12.5
