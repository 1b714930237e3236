"""The operations over HTTP do what the live learner does."""

import io
import json
import threading
import time

import httpx
import numpy as np
import pytest
import torch
from running import running, small

from everlearn import UNKNOWN, open_live
from everlearn.service import served
from everlearn.service.limits import Limits
from everlearn.service.routes import ASK, OBSERVE, PREDICT

JSON = {"Content-Type": "application/json"}
X = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
Y = ["left", "right"]


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with running(
        tmp_path_factory.mktemp("service"), limits=Limits(batch=50, body=20_000, classes=8)
    ) as service:
        yield service


@pytest.fixture
def call(service):
    """Call an operation with JSON; returns the status and the content."""
    with httpx.Client(base_url=service.url) as client:

        def send(operation, **fields):
            answer = client.post(f"/v1/{operation}", content=json.dumps(fields), headers=JSON)
            return answer.status_code, answer.json()

        yield send


def test_before_the_first_label_there_is_no_prediction(tmp_path):
    with running(tmp_path) as service:
        answer = service.http.post(f"{service.url}/v1/predict", json={"x": X})
        assert (answer.status_code, answer.json()["detail"]) == (
            409,
            "CoPE has seen no label yet: observe a batch first, then predict",
        )


def test_a_restarted_service_goes_on_where_it_was_and_equals_a_plain_learner(tmp_path):
    plain, generator = small(), torch.Generator().manual_seed(0)
    for _ in range(2):
        with running(tmp_path) as service:
            for _ in range(3):
                x, y = torch.randn(4, 3, generator=generator), ["a", "b", "c", "a"]
                answer = service.http.post(f"{service.url}/v1/observe", json={"x": x.tolist(), "y": y})
                assert answer.status_code == 200
                plain.observe(x, y)
            position = answer.json()["position"]
    assert position == 6
    with open_live(tmp_path / "model") as live:
        state, expected = live.learner.state_dict(), plain.state_dict()
        assert all(torch.equal(state[key], expected[key]) for key in expected if key != "meta")


def test_what_was_observed_is_predicted_with_its_position(call):
    status, answer = call("observe", x=X, y=Y)
    assert status == 200
    assert answer["samples"] == 2
    status, predicted = call("predict", x=X, min_position=answer["position"], probabilities=True)
    assert predicted["labels"] == Y
    assert predicted["position"] >= answer["position"]
    rows = np.array(predicted["probabilities"])
    assert rows.shape == (2, len(predicted["classes"]))
    np.testing.assert_allclose(rows.sum(1), 1, rtol=1e-5)


def test_ask_and_tell_and_which_answers_were_right(call):
    call("observe", x=X, y=Y)
    status, asked = call("ask", ids=["one", 2], x=X, confidences=True)
    assert (status, asked["labels"]) == (200, Y)
    assert len(asked["confidences"]) == 2
    status, told = call("tell", ids=["one", 2, "never"], y=["left", "left", "left"])
    assert status == 200
    parts = {name: told[name] for name in ("learnt", "missing", "right", "wrong")}
    assert parts == {"learnt": ["one", 2], "missing": ["never"], "right": ["one"], "wrong": [2]}


def test_forget_delete_correct_and_snapshot(call, service):
    call("observe", x=X, y=["left", "temporary"], ids=["a", "b"])
    assert call("forget", label="temporary")[0] == 200
    assert "temporary" not in service.http.get(f"{service.url}/v1/classes").json()["classes"]
    assert call("forget", label="temporary")[0] == 422
    call("observe", x=[[5.0, 5.0, 5.0]], y=["left"], ids=["wrong"])
    status, corrected = call("correct", ids=["wrong"], y=["right"])
    assert (status, corrected["exemplars"]) == (200, 1)
    status, deleted = call("delete", ids=["wrong", "nobody"])
    assert (status, deleted["exemplars"], deleted["missing"]) == (200, 1, ["nobody"])
    assert "weights" in deleted["note"]
    status, written = call("snapshot")
    assert (status, written["position"]) == (200, service.model.live.position)


def test_a_retry_with_the_same_request_id_is_applied_once(call, service):
    before, counted = service.model.live.learner.samples, service.model.monitor.samples
    for _ in range(3):
        status, _ = call("observe", x=X, y=Y, request_id="the same")
        assert status == 200
    assert service.model.live.learner.samples == before + 2
    assert service.model.monitor.samples == counted + 2


def test_npy_and_safetensors_bodies_learn_as_json_does(service):
    from everlearn.service.wire import encode_arrays

    file = io.BytesIO()
    np.save(file, np.array(X, np.float32))
    npy = {"Content-Type": "application/x-npy"}
    answer = service.http.post(
        f"{service.url}/v1/observe", params={"y": '["left","right"]'}, content=file.getvalue(), headers=npy
    )
    assert answer.json()["samples"] == 2
    for _ in range(9):
        service.http.post(answer.request.url, content=file.getvalue(), headers=npy)
    assert (
        service.http.post(f"{service.url}/v1/predict", content=file.getvalue(), headers=npy).json()["labels"]
        == Y
    )
    tensors = {"Content-Type": "application/x-safetensors"}
    content = encode_arrays(np.array(X, np.float32), {"y": Y})
    assert (
        service.http.post(f"{service.url}/v1/observe", content=content, headers=tensors).json()["samples"]
        == 2
    )


def test_json_integers_have_the_type_of_a_learner_of_bytes(tmp_path):
    with running(tmp_path) as service:
        service.model.live.observe(np.array([[0, 255], [255, 0]], np.uint8), [0, 1])
        answer = service.http.post(f"{service.url}/v1/predict", json={"x": [[0, 255], [255, 0]]})
        assert answer.json()["labels"] == service.model.live.predict(np.array([[0, 255], [255, 0]], np.uint8))
        answer = service.http.post(f"{service.url}/v1/predict", json={"x": [[0, 256]]})
        assert (answer.status_code, answer.json()["detail"]) == (
            400,
            "this model takes bytes: x must be between 0 and 255",
        )


@pytest.mark.parametrize(
    ("operation", "fields", "status", "sentence"),
    [
        ("observe", {"x": X}, 400, "the field 'y' is missing"),
        ("observe", {"x": X, "y": Y, "z": 1}, 400, "there is no field 'z'"),
        ("observe", {"x": X, "y": ["left"]}, 422, "2 samples but 1 labels"),
        ("observe", {"x": [[1.0]], "y": ["left"]}, 422, "but the network takes"),
        ("observe", {"x": 3, "y": []}, 400, "x has one number"),
        ("observe", {"x": [], "y": []}, 400, "x has no samples; a request takes 1 to 50 samples"),
        ("predict", {"x": []}, 400, "x has no samples; a request takes 1 to 50 samples"),
        ("ask", {"x": [], "ids": []}, 400, "x has no samples; a request takes 1 to 50 samples"),
        ("observe", {"x": [[1e30] * 3] * 2, "y": Y}, 422, "Live.observe got values in x larger than"),
        ("observe", {"x": [[1.0, 2.0, 3.0]] * 51, "y": [0] * 51}, 400, "1 to 50 samples"),
        ("observe", {"x": X, "y": ["left", "a" * 1001]}, 400, "more than 1,000 characters"),
        ("observe", {"x": X * 5, "y": list(range(10))}, 400, "above the limit of 8"),
        ("observe", {"x": X, "y": Y, "t": "first"}, 400, "t must be a whole number"),
        ("observe", {"x": X, "y": Y, "request_id": 7}, 400, "request_id must be a string"),
        ("predict", {"x": X, "probabilities": "yes"}, 400, "probabilities must be true or false"),
        ("predict", {"x": [[1e30] * 3]}, 422, "scale x"),
        ("ask", {"ids": ["a", "a"], "x": X}, 422, "twice"),
        ("tell", {"ids": ["a"], "y": [{"what": 1}]}, 400, "not a label"),
        ("forget", {"label": "never"}, 422, "never observed"),
        ("delete", {"ids": "a"}, 400, "ids must be a list, not a string"),
    ],
)
def test_a_mistake_is_one_sentence_and_changes_nothing(call, service, operation, fields, status, sentence):
    call("observe", x=X, y=Y)
    before = service.model.live.learner.state_dict()
    code, answer = call(operation, **fields)
    assert code == status, answer
    assert sentence in answer["detail"]
    after = service.model.live.learner.state_dict()
    assert all(torch.equal(after[key], before[key]) for key in before if key != "meta")


def test_a_body_that_is_too_large_is_not_read(service):
    answer = service.http.post(f"{service.url}/v1/observe", content=b" " * 20_001, headers=JSON)
    assert answer.status_code == 413
    endless = (b" " * 1000 for _ in range(10_000))  # in chunks, without a length
    answer = service.http.post(f"{service.url}/v1/observe", content=endless, headers=JSON)
    assert answer.status_code == 413
    assert answer.json()["detail"] == "the body is larger than 20,000 bytes: send smaller batches"


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "application/x-pickle", ""]
)
def test_another_content_type_is_refused(service, kind):
    answer = service.http.post(f"{service.url}/v1/predict", content=b"{}", headers={"Content-Type": kind})
    assert answer.status_code == 415


def test_a_full_queue_is_429_with_a_time_to_wait_and_nothing_is_lost(tmp_path):
    with running(tmp_path, limits=Limits(queue=3, predictions=2)) as service:
        live, release = service.model.live, threading.Event()
        holding = threading.Thread(target=live._between_changes, args=(lambda: release.wait(30),))
        holding.start()  # the writer waits
        answers = []
        threads = [
            threading.Thread(
                target=lambda i=i: answers.append(
                    service.http.post(
                        f"{service.url}/v1/observe", json={"x": [[float(i), 1.0]], "y": [i]}, timeout=30
                    )
                )
            )
            for i in range(6)
        ]
        for thread in threads:
            thread.start()
        while sum(answer.status_code == 429 for answer in answers) < 3:
            time.sleep(0.01)
        assert service.http.get(f"{service.url}/readyz").status_code == 503
        assert service.http.get(f"{service.url}/healthz").text == "ok\n"
        release.set()
        for thread in [*threads, holding]:
            thread.join()
        assert sorted(answer.status_code for answer in answers) == [200] * 3 + [429] * 3
        refused = [answer for answer in answers if answer.status_code == 429]
        assert all(int(answer.headers["Retry-After"]) >= 1 for answer in refused)
        assert live.learner.samples == 3


def test_predictions_do_not_wait_for_learning(tmp_path):
    with running(tmp_path) as service:
        live, release = service.model.live, threading.Event()
        live.observe(torch.tensor(X), Y)
        position = live.position
        live.snapshot(position)  # it is in memory now
        threads = [
            threading.Thread(target=live._between_changes, args=(lambda: release.wait(30),)),
            threading.Thread(target=live.observe, args=(torch.tensor(X), Y)),
        ]
        for thread in threads:
            thread.start()
        answer = service.http.post(f"{service.url}/v1/predict", json={"x": X, "min_position": position})
        held = not release.is_set() and live.position == position
        release.set()
        for thread in threads:
            thread.join()
        assert held  # the answer came while the writer waited
        assert (answer.json()["labels"], answer.json()["position"]) == (Y, position)
        answer = service.http.post(f"{service.url}/v1/predict", json={"x": X, "min_position": position + 1})
        assert answer.json()["position"] == position + 1


def test_several_models_by_name(tmp_path):
    with running(tmp_path, names=("cats", "dogs")) as service:
        for name in ("cats", "dogs"):
            answer = service.http.post(
                f"{service.url}/v1/models/{name}/observe", json={"x": X, "y": [name, 0]}
            )
            assert answer.status_code == 200
        found = service.http.get(f"{service.url}/v1/models").json()["models"]
        assert [(each["name"], each["position"]) for each in found] == [("cats", 1), ("dogs", 1)]
        classes = service.http.get(f"{service.url}/v1/models/dogs/classes").json()["classes"]
        assert classes == ["dogs", 0]
        answer = service.http.get(f"{service.url}/v1/classes")
        assert answer.status_code == 404
        assert "name one, as in /v1/models/cats/" in answer.json()["detail"]
        answer = service.http.get(f"{service.url}/v1/models/dog/classes")
        assert "did you mean 'dogs'?" in answer.json()["detail"]


def test_status_and_history_are_what_the_live_learner_says(tmp_path):
    with running(tmp_path, learner=lambda: small(unknown=0.1)) as service:
        live = service.model.live
        for i in range(15):
            service.http.post(f"{service.url}/v1/observe", json={"x": X, "y": Y})
            service.http.post(f"{service.url}/v1/ask", json={"x": X, "ids": [f"{i}a", f"{i}b"]})
            service.http.post(f"{service.url}/v1/tell", json={"ids": [f"{i}a"], "y": ["left"]})
        status = service.http.get(f"{service.url}/v1/status").json()
        assert (status["position"], status["samples"], status["told"]) == (live.position, 45, 15)
        assert status["accuracy"]["overall"] == live.status()["accuracy"]["overall"]
        assert status["learnt"] == [30, 15]
        assert status["before_learning"]["samples"] == 28  # all but the first batch
        history = service.http.get(f"{service.url}/v1/history").json()
        assert [(e["event"], e["label"]) for e in history["events"]] == [
            ("new class", "left"),
            ("new class", "right"),
        ]
        assert history["answers"] == [list(point) for point in live.curve()]


def test_metrics_can_be_read_by_prometheus(service, call):
    from prometheus_client.parser import text_string_to_metric_families

    call("observe", x=X, y=Y)
    answer = service.http.get(f"{service.url}/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    found = {
        sample.name: sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
        if sample.labels == {"model": "model"}
    }
    assert found["everlearn_position"] == service.model.live.position
    assert found["everlearn_samples_total"] == service.model.live.learner.samples
    assert found["everlearn_step_seconds"] > 0
    for name in (
        "fsync_seconds",
        "disk_snapshot_age_seconds",
        "waiting_samples",
        "queue_length",
        "drift_alarms_total",
    ):
        assert f"everlearn_{name}" in found


def test_the_openapi_page_names_every_operation_and_nothing_outside(service):
    from everlearn.service.app import STATIC

    paths = service.http.get(f"{service.url}/openapi.json").json()["paths"]
    wanted = "observe predict ask tell forget delete correct classes status history snapshot events models"
    assert {f"/v1/{name}" for name in wanted.split()} <= set(paths)
    assert service.http.get(f"{service.url}/docs").status_code == 200
    for file in STATIC.iterdir():
        text = file.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in text and "https://" not in text, file.name
    assert service.http.get(f"{service.url}/static/..%2Fapp.py").status_code == 404


def test_labels_that_json_has_not_come_back(call):
    status, _ = call("observe", x=X, y=[{"bytes": "ff"}, ["pair", 1]])
    assert status == 200
    status, answer = call("predict", x=X)
    assert status == 200
    assert all(label in [*Y, {"bytes": "ff"}, ["pair", 1]] for label in answer["labels"])


def test_events_are_what_the_dashboard_shows(service, call):
    call("observe", x=X, y=Y)
    with service.http.stream("GET", f"{service.url}/v1/events") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        line = next(answer.iter_lines())
    shown = json.loads(line.removeprefix("data: "))
    assert shown["samples"] == service.model.live.learner.samples
    assert {row["label"] for row in shown["per_class"]} >= set(Y)


def test_unknown_samples_are_said_to_be_so(tmp_path):
    with running(tmp_path, learner=lambda: small(unknown=0.0)) as service:
        live = service.model.live
        for _ in range(20):
            live.observe(torch.tensor(X), Y)
        far = [[-1.0, -1.0, 9.0]]
        expected = live.predict(far)
        answer = service.http.post(
            f"{service.url}/v1/predict", json={"x": far, "min_position": live.position}
        ).json()
        assert answer["labels"] == [{"unknown": True} if expected == [UNKNOWN] else expected[0]]


@pytest.mark.parametrize("shape", [(0, 3), (0,), (2, 0), (), (3,), (2, 3, 0)])
@pytest.mark.parametrize("operation", ["observe", "predict", "ask"])
def test_an_array_without_samples_is_a_mistake_and_no_failure(service, call, operation, shape):
    from everlearn.service.wire import encode_arrays

    call("observe", x=X, y=Y)
    file = io.BytesIO()
    np.save(file, np.zeros(shape))
    fields = {"observe": {"y": Y}, "predict": {}, "ask": {"ids": ["a", "b"]}}[operation]
    query = {name: json.dumps(value) for name, value in fields.items()}
    url = f"{service.url}/v1/{operation}"
    npy = service.http.post(
        url, params=query, content=file.getvalue(), headers={"Content-Type": "application/x-npy"}
    )
    tensors = service.http.post(
        url,
        content=encode_arrays(np.zeros(shape), fields),
        headers={"Content-Type": "application/x-safetensors"},
    )
    for answer in (npy, tensors):
        assert answer.status_code in (400, 422)
        assert "detail" in answer.json()


ODD = [
    None,
    True,
    0,
    -1,
    2**63,
    10**400,
    1.5,
    "",
    "\ud800",
    "\0",
    [],
    {},
    [[]],
    [{}],
    [None, "a"],
    ["a", "b"],
]
ODD += [
    [2**64, 1],
    [[1, 2], [3]],
    [[None] * 3],
    [["a"] * 3] * 2,
    [{"a": 1}, {"a": "b"}],
    [{"a": [1]}, {"a": {}}],
]
ODD += [[{"bytes": "ff"}, {"float": "nan"}], [{"unknown": True}, 1], [[[[[[[[[[[]]]]]]]]]]], {"bytes": "zz"}]


FIELDS = {
    "observe": OBSERVE,
    "predict": PREDICT,
    "ask": ASK,
    "tell": ("ids", "y", "t", "request_id"),
    "forget": ("label", "request_id"),
    "delete": ("ids", "rebuild", "request_id"),
    "correct": ("ids", "y", "rebuild", "request_id"),
}


@pytest.mark.parametrize("operation", list(FIELDS))
def test_no_value_of_json_is_a_failure_of_the_service(tmp_path, monkeypatch, operation):
    monkeypatch.setattr(served, "PATIENCE", 0.05)  # for a position that is never reached
    usual = {"x": X, "y": Y, "ids": ["a", "b"], "label": "left"}
    with running(tmp_path) as service:
        service.model.live.observe(torch.tensor(X), Y)
        needed = {name: usual[name] for name in FIELDS[operation] if name in usual}
        for name in FIELDS[operation]:
            for value in ODD:
                content = json.dumps({**needed, name: value})
                answer = service.http.post(f"{service.url}/v1/{operation}", content=content, headers=JSON)
                assert answer.status_code < 500, content
                assert answer.status_code == 200 or "detail" in answer.json()
        for page in ("metrics", "v1/status", "v1/classes", "v1/history", "v1/input"):
            assert service.http.get(f"{service.url}/{page}").status_code == 200


def test_metrics_can_be_read_whatever_the_labels_are(tmp_path):
    from prometheus_client.parser import text_string_to_metric_families

    labels = ["\ud800", "\\ud800", 1, "1", "a\nb", '"', b"\xff", ("a", 1)]
    with running(tmp_path) as service:
        service.model.live.observe(torch.randn(8, 3), labels)
        answer = service.http.get(f"{service.url}/metrics")
        assert answer.status_code == 200
        samples = [each for family in text_string_to_metric_families(answer.text) for each in family.samples]
        found = [each.labels["class"] for each in samples if each.name == "everlearn_memory_exemplars"]
        assert len({*found}) == len(found) == len(labels)
