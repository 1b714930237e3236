"""The operations of a service as a client sees them: arrays and labels to requests, answers to results."""

from __future__ import annotations

import json
import os
import random
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

import numpy as np

from everlearn.label_json import Label
from everlearn.service.client_input import as_address, as_given, as_list, as_plain, as_samples, as_token
from everlearn.service.wire import JSON, SAFETENSORS, decode_labels, encode_arrays, encode_labels

__all__ = ["Operations", "ServiceError", "ServiceRequest", "ToldOverHTTP"]

TOKEN = "EVERLEARN_TOKEN"  # the environment variable with the token
AGAIN = (429, 502, 503, 504)  # statuses after which a retry makes sense
LONGEST = (
    2.0  # seconds between two tries, unless the service names a longer time, of at most five times as much
)


class ServiceError(RuntimeError):
    """The service refused a request, or can't be reached. status: of HTTP, None without an answer."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class ToldOverHTTP(NamedTuple):
    """The result of `tell`: ids that were learnt or had no sample, and those whose answers were right or wrong."""

    learnt: list[Label]
    missing: list[Label]
    right: list[Label]
    wrong: list[Label]


class ServiceRequest(NamedTuple):
    """A request without its transport. parse: the result from the JSON of the answer."""

    method: str
    path: str
    content: bytes | None
    headers: dict[str, str]
    parse: Callable[[dict[str, Any]], Any]


class Operations(ABC):
    """The operations; `_send` of a subclass makes the request.

    url: of the service. model: its name, if the service has several. token: by default $EVERLEARN_TOKEN.
    timeout: seconds for one try. retries: further tries, if the service is busy or can't be reached; a change carries
    a request id, so that it is applied once.

    position: that of the last change made by this client; `predict(x, min_position=client.position)` sees it.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        model: str | None = None,
        *,
        token: str | None = None,
        timeout: float = 60.0,
        retries: int = 5,
        transport: Any = None,
    ) -> None:
        self.url, self.model, self.retries = as_address(url), model, retries
        self.position = 0
        token = token or os.environ.get(TOKEN)
        headers = {"Authorization": f"Bearer {as_token(token)}"} if token else {}
        self._http = self._make(timeout=timeout, headers=headers, transport=transport)

    @abstractmethod
    def _make(self, **options: Any) -> Any:
        """The HTTP client."""

    @abstractmethod
    def _send(self, request: ServiceRequest) -> Any:
        """Send a request, and return its result."""

    # Changes.

    def observe(
        self,
        x: Any,
        y: Any,
        ids: Any = None,
        *,
        t: int | None = None,
        sample_weight: Any = None,
        request_id: str | None = None,
    ) -> Any:
        """Learn from a batch; returns the position after it. sample_weight: how much each sample counts."""
        fields = {
            "y": _labels(y, "y"),
            "ids": None if ids is None else _labels(ids, "ids"),
            "t": t,
            "sample_weight": None if sample_weight is None else as_list(sample_weight, "sample_weight"),
            "request_id": request_id or _request_id(),
        }
        return self._send(self._request("observe", fields, x, self._moved))

    def ask(self, ids: Any, x: Any, *, confidence: bool = False, request_id: str | None = None) -> Any:
        """Predict, and let the service keep the samples until `tell`; with `confidence`, a pair."""
        fields = {
            "ids": _labels(ids, "ids"),
            "confidences": confidence,
            "request_id": request_id or _request_id(),
        }

        def parse(answer: dict[str, Any]) -> Any:
            self._moved(answer)
            labels = decode_labels(answer["labels"])
            return (labels, as_given(answer["confidences"], x)) if confidence else labels

        return self._send(self._request("ask", fields, x, parse))

    def tell(self, ids: Any, y: Any, t: int | None = None, *, request_id: str | None = None) -> Any:
        """Give the labels of samples that were asked; says which answers were right."""
        fields = {
            "ids": _labels(ids, "ids"),
            "y": _labels(y, "y"),
            "t": t,
            "request_id": request_id or _request_id(),
        }

        def parse(answer: dict[str, Any]) -> ToldOverHTTP:
            self._moved(answer)
            return ToldOverHTTP(*(decode_labels(answer[name]) for name in ToldOverHTTP._fields))

        return self._send(self._request("tell", fields, None, parse))

    def forget(self, label: Label, *, request_id: str | None = None) -> Any:
        """Remove a class; returns the position after it."""
        fields = {"label": _labels([label], "label")[0], "request_id": request_id or _request_id()}
        return self._send(self._request("forget", fields, None, self._moved))

    def delete(self, ids: Any, *, rebuild: bool = False, request_id: str | None = None) -> Any:
        """Delete samples by their ids; returns what was removed, as a dict."""
        fields = {"ids": _labels(ids, "ids"), "rebuild": rebuild, "request_id": request_id or _request_id()}
        return self._send(self._request("delete", fields, None, self._edited))

    def correct(self, ids: Any, labels: Any, *, rebuild: bool = False, request_id: str | None = None) -> Any:
        """Put wrong labels right; returns what was corrected, as a dict."""
        fields = {
            "ids": _labels(ids, "ids"),
            "y": _labels(labels, "labels"),
            "rebuild": rebuild,
            "request_id": request_id or _request_id(),
        }
        return self._send(self._request("correct", fields, None, self._edited))

    def save(self) -> Any:
        """Let the service write a snapshot to disk; returns its position."""
        return self._send(self._request("snapshot", {}, None, lambda answer: answer["position"]))

    # Predictions, and what there is.

    def predict(self, x: Any, *, confidence: bool = False, min_position: int | None = None) -> Any:
        """The label of each sample; with `confidence`, a pair with the probability of each."""
        fields = {"min_position": min_position, "probabilities": confidence}

        def parse(answer: dict[str, Any]) -> Any:
            labels = decode_labels(answer["labels"])
            if not confidence:
                return labels
            return labels, as_given(np.max(answer["probabilities"], axis=1), x)

        return self._send(self._request("predict", fields, x, parse))

    def predict_proba(self, x: Any, *, min_position: int | None = None) -> Any:
        """A row of probabilities per sample, over `classes()`: an array, or a tensor if x is one."""
        fields = {"min_position": min_position, "probabilities": True}
        return self._send(
            self._request("predict", fields, x, lambda answer: as_given(answer["probabilities"], x))
        )

    def suggest(self, n: int = 10) -> Any:
        """The ids of the n waiting samples whose labels would teach the model most, the best first."""
        return self._send(self._get(f"suggest?n={n}", lambda answer: decode_labels(answer["ids"])))

    def classes(self) -> Any:
        """The labels seen so far, in the order first seen."""
        return self._send(self._get("classes", lambda answer: decode_labels(answer["classes"])))

    def status(self) -> Any:
        """What the model holds and how well it does, as a dict."""
        return self._send(self._get("status", dict))

    def input(self) -> Any:
        """What the model takes, as a dict: columns, shape and type of a sample, each None before the first one."""

        def parse(answer: dict[str, Any]) -> dict[str, Any]:
            columns = answer["columns"]
            return {**answer, "columns": None if columns is None else list(map(_column, columns))}

        return self._send(self._get("input", parse))

    def history(self) -> Any:
        """Accuracy over time, and events, as a dict."""
        return self._send(self._get("history", dict))

    # Requests.

    def _path(self, operation: str) -> str:
        return f"{self.url}/v1/{'' if self.model is None else f'models/{self.model}/'}{operation}"

    def _get(self, operation: str, parse: Callable[[dict[str, Any]], Any]) -> ServiceRequest:
        return ServiceRequest("GET", self._path(operation), None, {}, parse)

    def _request(
        self, operation: str, fields: dict[str, Any], x: Any, parse: Callable[[dict[str, Any]], Any]
    ) -> ServiceRequest:
        """A request with these fields; samples in arrays are sent as bytes, lists as JSON, DataFrames with names."""
        fields = {
            name: value.item() if isinstance(value, np.generic) else value
            for name, value in fields.items()
            if value is not None and value is not False
        }
        kind = JSON
        if x is None:
            content = json.dumps(fields).encode()
        else:
            samples, names = as_samples(x, f"{type(self).__name__}.{operation}")
            if isinstance(samples, list):
                content = json.dumps({**fields, **names, "x": samples}, default=as_plain).encode()
            else:
                kind, content = SAFETENSORS, encode_arrays(samples, fields | names)
        return ServiceRequest("POST", self._path(operation), content, {"Content-Type": kind}, parse)

    def _moved(self, answer: dict[str, Any]) -> int:
        self.position = max(self.position, answer["position"])
        return int(answer["position"])

    def _edited(self, answer: dict[str, Any]) -> dict[str, Any]:
        self._moved(answer)
        return {
            name: decode_labels(value) if isinstance(value, list) else value for name, value in answer.items()
        }

    def _wait(self, tried: int, answer: Any, error: Exception | None) -> float | None:
        """Seconds until the next try; None if the answer is final. Raises an error if there were enough tries."""
        if error is None and answer.status_code not in AGAIN:
            return None
        if tried >= self.retries:
            if error is not None:
                raise ServiceError(
                    f"{self.url} can't be reached ({error}): is `everlearn serve` running?"
                ) from error
            return None
        least = _retry_after(answer.headers.get("Retry-After", "")) if error is None else 0.0
        wait: float = max(min(least, 5 * LONGEST), min(0.1 * 2**tried, LONGEST)) * (1 + random.random() / 4)
        return wait


def _retry_after(value: str) -> float:
    """The seconds in a header Retry-After, which has a number or a date; 0 for anything else.

    >>> _retry_after("3"), _retry_after("Wed, 21 Oct 2015 07:28:00 GMT"), _retry_after("soon")
    (3.0, 0.0, 0.0)
    """
    if value.isascii() and value.isdigit():
        return float(value)
    try:
        return max(parsedate_to_datetime(value).timestamp() - time.time(), 0.0)
    except (ValueError, OverflowError):
        return 0.0


def _request_id() -> str:
    return uuid.uuid4().hex


def _column(code: dict[str, Any]) -> dict[str, Any]:
    """A column of a model with its name and categories as they are in Python."""
    (name,), codes = decode_labels([code["name"]]), code["categories"]
    return {"name": name, "categories": None if codes is None else decode_labels(codes)}


def _labels(labels: Any, what: str) -> list[Any]:
    """Labels or ids as JSON. what: the name of the argument."""
    return encode_labels(as_list(labels, what))
