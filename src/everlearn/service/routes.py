"""The operations of a live learner over HTTP."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import json
from typing import Any

from fastapi import APIRouter, Depends, HTTPException, Request
from starlette.responses import Response

from everlearn.live import LiveSnapshot
from everlearn.memory.labels import shortened
from everlearn.messages import nearest
from everlearn.service.bodies import SUGGEST, SUGGESTED, answers, body
from everlearn.service.requests import Fields, content_type, read_request
from everlearn.service.security import needs
from everlearn.service.served import ServedModel
from everlearn.service.view import history_of, input_of, status_of
from everlearn.service.wire import WireError, encode_labels

__all__ = ["model_of", "router"]

router = APIRouter()
# The fields of the operations.
OBSERVE = ("x", "y", "ids", "t", "sample_weight", "columns", "categories", "request_id")
PREDICT = ("x", "columns", "categories", "min_position", "probabilities")
ASK = ("ids", "x", "columns", "categories", "confidences", "request_id")
TELL = ("ids", "y", "t", "request_id")
FORGET = ("label", "request_id")
DELETE = ("ids", "rebuild", "request_id")
CORRECT = ("ids", "y", "rebuild", "request_id")
INPUT = {
    "columns": [{"name": "amount", "categories": None}, {"name": "country", "categories": ["NO", "IT"]}],
    "shape": [33],
    "type": "float32",
    "encoder": None,
    "missing_labels": "refuse",
    "position": 7,
}
CLASSES = {"classes": ["cat", "dog"], "exemplars": [10, 10], "position": 7}
CORRECTED = {
    "exemplars": 1,
    "missing": ["a-2"],
    "forgotten": [],
    "rebuilt": False,
    "note": "…",
    "position": 11,
}
DELETED = CORRECTED | {"waiting": 0}
predicts, learns, administers = ([Depends(needs(scope))] for scope in ("predict", "learn", "admin"))
either = [Depends(needs("predict", "learn"))]


def model_of(request: Request) -> ServedModel:
    """The model that the path names; without a name, the only one or the one called "default"."""
    models: dict[str, ServedModel] = request.app.state.models
    name = request.path_params.get("model")
    if name is None:
        if len(models) == 1:
            return next(iter(models.values()))
        if "default" in models:
            return models["default"]
        raise HTTPException(
            404, f"this service has several models: name one, as in /v1/models/{next(iter(models))}/…"
        )
    if name not in models:
        raise HTTPException(404, f"there is no model {name!r}{nearest(name, models)}")
    return models[name]


def answer(content: dict[str, Any]) -> Response:
    """A JSON response."""
    return Response(json.dumps(content, separators=(",", ":")), media_type="application/json")


@router.post(
    "/observe",
    dependencies=learns,
    openapi_extra=body(*OBSERVE, answer={"position": 7, "samples": 2}),
)
async def observe(request: Request) -> Response:
    """Learn from a batch. When the answer arrives, the batch is on disk and learnt."""
    model = model_of(request)

    def read(fields: Fields) -> tuple[Any, ...]:
        return (
            fields.samples(model),
            fields.labels("y", model),
            fields.optional_labels("ids"),
            fields.whole("t"),
            fields.numbers("sample_weight"),
            fields.text("request_id"),
        )

    x, y, *others = await read_request(request, model.limits, OBSERVE, read)
    _, position = await model.change(lambda: model.observe(x, y, *others))
    return answer({"position": position, "samples": len(y)})


@router.post(
    "/predict",
    dependencies=predicts,
    openapi_extra=body(*PREDICT, answer={"labels": ["cat", "dog"], "position": 7}),
)
async def predict(request: Request) -> Response:
    """Predict the labels of samples, from the latest snapshot in memory. It never waits for learning.

    `position` is that of the snapshot. `min_position` waits until a snapshot has at least this position: give it the
    position of your own last change to read your writes.
    """
    model = model_of(request)
    x, wanted, min_position = await read_request(
        request,
        model.limits,
        PREDICT,
        lambda fields: (fields.samples(model), fields.flag("probabilities"), fields.whole("min_position")),
    )

    def compute(snapshot: LiveSnapshot) -> dict[str, Any]:
        result: dict[str, Any] = {"labels": encode_labels(snapshot.predict(x))}
        if wanted:
            result["probabilities"] = snapshot.predict_proba(x).tolist()
            result["classes"] = encode_labels(snapshot.classes)
        return result

    result, position = await model.predict(compute, min_position or 0)
    return answer({**result, "position": position})


@router.post(
    "/ask",
    dependencies=learns,
    openapi_extra=body(*ASK, answer={"labels": ["cat", "dog"], "position": 8}),
)
async def ask(request: Request) -> Response:
    """Predict samples, and keep them by id until `tell` gives their labels."""
    model = model_of(request)

    def read(fields: Fields) -> tuple[Any, ...]:
        return (
            fields.labels("ids"),
            fields.samples(model),
            fields.flag("confidences"),
            fields.text("request_id"),
        )

    ids, x, wanted, request_id = await read_request(request, model.limits, ASK, read)
    result, position = await model.change(
        lambda: model.live.ask(ids, x, confidence=wanted, request_id=request_id)
    )
    labels = result[0] if wanted else result
    confidences = {"confidences": result[1].tolist()} if wanted else {}
    return answer({"labels": encode_labels(labels), **confidences, "position": position})


@router.post(
    "/tell",
    dependencies=learns,
    openapi_extra=body(
        *TELL,
        answer={"learnt": ["a-1", "a-2"], "missing": [], "right": ["a-1"], "wrong": ["a-2"], "position": 9},
    ),
)
async def tell(request: Request) -> Response:
    """Give the labels of samples that were asked earlier; they are learnt as one batch."""
    model = model_of(request)

    def read(fields: Fields) -> tuple[Any, ...]:
        return fields.labels("ids"), fields.labels("y", model), fields.whole("t"), fields.text("request_id")

    ids, y, t, request_id = await read_request(request, model.limits, TELL, read)
    told, position = await model.change(lambda: model.live.tell(ids, y, t=t, request_id=request_id))
    model.monitor.arrived(len(told.learnt))
    parts = {name: encode_labels(getattr(told, name)) for name in ("learnt", "missing", "right", "wrong")}
    return answer({**parts, "position": position})


@router.post("/forget", dependencies=administers, openapi_extra=body(*FORGET, answer={"position": 10}))
async def forget(request: Request) -> Response:
    """Remove a class."""
    model = model_of(request)
    label, request_id = await read_request(
        request, model.limits, FORGET, lambda fields: (fields.label("label"), fields.text("request_id"))
    )
    _, position = await model.change(functools.partial(model.live.forget, label, request_id=request_id))
    return answer({"position": position})


@router.post("/delete", dependencies=administers, openapi_extra=body(*DELETE, answer=DELETED))
async def delete(request: Request) -> Response:
    """Remove the samples with these ids from memory, waiting list, journal and snapshots."""
    model = model_of(request)

    def read(fields: Fields) -> tuple[Any, ...]:
        return fields.labels("ids"), fields.flag("rebuild"), fields.text("request_id")

    ids, rebuild, request_id = await read_request(request, model.limits, DELETE, read)
    result, position = await model.change(
        lambda: model.live.delete(ids, rebuild=rebuild, request_id=request_id)
    )
    model.monitor.mistakes.clear()  # they may show what was deleted
    return answer({**_plain(result), "position": position})


@router.post(
    "/correct",
    dependencies=administers,
    openapi_extra=body(*CORRECT, answer=CORRECTED),
)
async def correct(request: Request) -> Response:
    """Put wrong labels right, in memory and prototypes."""
    model = model_of(request)

    def read(fields: Fields) -> tuple[Any, ...]:
        return (
            fields.labels("ids"),
            fields.labels("y", model),
            fields.flag("rebuild"),
            fields.text("request_id"),
        )

    ids, y, rebuild, request_id = await read_request(request, model.limits, CORRECT, read)
    result, position = await model.change(
        lambda: model.live.correct(ids, y, rebuild=rebuild, request_id=request_id)
    )
    return answer({**_plain(result), "position": position})


@router.post("/snapshot", dependencies=administers, openapi_extra=answers({"position": 7}))
async def write_snapshot(request: Request) -> Response:
    """Write a snapshot to disk now, so that a restart replays nothing before it. The body may be empty."""
    content_type(request)
    model = model_of(request)
    saved, _ = await model.change(model.live.save)
    return answer({"position": saved})


@router.get("/classes", dependencies=predicts, openapi_extra=answers(CLASSES))
async def classes(request: Request) -> Response:
    """The labels seen so far, in the order first seen, with the exemplars of each in memory."""
    live = model_of(request).live
    snapshot = await asyncio.to_thread(lambda: live.snapshot(live.position))
    counts, known = snapshot.exemplars(), snapshot.classes
    return answer(
        {
            "classes": encode_labels(known),
            "exemplars": [counts.get(label, 0) for label in known],
            "position": snapshot.position,
        }
    )


@router.get("/suggest", dependencies=learns, openapi_extra=SUGGEST)
async def suggest(request: Request) -> Response:
    """The ids of the waiting samples whose labels would teach the model most, the best first."""
    model, given = model_of(request), request.query_params.get("n", str(SUGGESTED))
    valid = given.isascii() and given.isdigit() and len(given) < 10
    if not valid or int(given) > model.limits.batch:
        raise WireError(f"n must be a number of samples up to {model.limits.batch:,}, not {shortened(given)}")
    ids, position = await model.suggest(int(given))
    return answer({"ids": encode_labels(ids), "position": position})


@router.get("/input", dependencies=either, openapi_extra=answers(INPUT))
async def takes(request: Request) -> Response:
    """What the model takes: the columns of its samples, their shape and type, and what a missing label does.

    All of it but the last is null before the first batch; `columns` is null if the first samples had no names.
    """
    return answer(input_of(model_of(request)))


@router.get("/status", dependencies=predicts)
async def status(request: Request) -> Response:
    """Position, counts, accuracy, delays of labels, and the state of queue, journal and snapshots."""
    return answer(await asyncio.to_thread(status_of, model_of(request)))


@router.get("/history", dependencies=predicts)
async def history(request: Request) -> Response:
    """Accuracy over time and what happened when: new classes, alarms, refused batches, deletions."""
    return answer(await asyncio.to_thread(history_of, model_of(request)))


def _plain(result: Any) -> dict[str, Any]:
    """A result of `delete` or `correct` as JSON."""
    values = dataclasses.asdict(result)
    return {
        name: encode_labels(value) if isinstance(value, list) else value for name, value in values.items()
    }
