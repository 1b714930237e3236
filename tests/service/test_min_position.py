"""Predictions that wait for a position keep nobody else from changing the model."""

import threading
import time

from running import running

from everlearn.service import served

X, Y = [[1.0, 0.0], [0.0, 1.0]], ["left", "right"]


def post(service, operation, **fields):
    return service.http.post(f"{service.url}/v1/{operation}", json=fields)


def test_a_position_that_no_change_reaches_is_refused_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(served, "PATIENCE", 600.0)  # the test would not end
    with running(tmp_path) as service:
        position = post(service, "observe", x=X, y=Y).json()["position"]
        answer = post(service, "predict", x=X, min_position=10**9)
        assert answer.status_code == 409
        assert answer.json()["detail"].startswith("model is at position 1, and no change that waits reaches")
        assert post(service, "predict", x=X, min_position=position).json()["position"] == position


class NoSource:
    """A source without messages."""

    name = "nothing"

    def read(self, position, most, seconds):
        time.sleep(0.01)
        return []

    def close(self):
        pass


def test_predictions_that_wait_for_a_consumer_leave_the_threads_of_changes_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(served, "CHANGING", 1)
    with running(tmp_path) as service:
        service.model.consume(NoSource(), 10)
        position = post(service, "observe", x=X, y=Y).json()["position"]
        answers = []

        def wait():
            answers.append(post(service, "predict", x=X, min_position=position + 1))

        threads = [threading.Thread(target=wait) for _ in range(served.WAITING + 1)]
        for thread in threads:
            thread.start()
        while service.model.predicting < len(threads):
            time.sleep(0.01)
        assert post(service, "predict", x=X).status_code == 200
        assert post(service, "observe", x=X, y=Y).status_code == 200  # that for which they wait
        for thread in threads:
            thread.join()
        assert {answer.json()["position"] for answer in answers} == {position + 1}


def test_a_position_that_the_consumer_does_not_reach_is_an_error_after_a_while(tmp_path, monkeypatch):
    monkeypatch.setattr(served, "PATIENCE", 0.05)
    with running(tmp_path) as service:
        service.model.consume(NoSource(), 10)
        position = post(service, "observe", x=X, y=Y).json()["position"]
        answer = post(service, "predict", x=X, min_position=position + 5)
        assert answer.status_code == 409
        assert answer.json()["detail"] == f"position {position + 5} was not reached within 0.05 seconds"


def test_suggestions_leave_the_threads_of_predictions_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(served, "PREDICTING", 1)
    with running(tmp_path) as service:
        post(service, "observe", x=X, y=Y)
        post(service, "ask", ids=["a"], x=[[1.0, 1.0]])
        live, release = service.model.live, threading.Event()
        suggest = live.suggest
        live.suggest = lambda n: release.wait(60) and suggest(n)
        answers = []
        thread = threading.Thread(
            target=lambda: answers.append(service.http.get(f"{service.url}/v1/suggest").json())
        )
        thread.start()
        while not service.model.predicting:
            time.sleep(0.01)
        assert post(service, "predict", x=X).status_code == 200
        release.set()
        thread.join()
        assert answers == [{"ids": ["a"], "position": live.position}]
        answer = service.http.get(f"{service.url}/v1/suggest?n=10001")
        assert answer.json()["detail"] == "n must be a number of samples up to 10,000, not '10001'"
