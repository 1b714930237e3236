"""The service as an ASGI app: routes, errors, pages, health and metrics."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse

import everlearn
from everlearn.core.prediction import Diverged, NotLearntYet
from everlearn.live import Busy, LiveError
from everlearn.service.limits import Limits
from everlearn.service.metrics import exposition
from everlearn.service.routes import answer, model_of, router
from everlearn.service.security import Guard, needs
from everlearn.service.served import ServedModel, TooBusy
from everlearn.service.tokens import Tokens
from everlearn.service.view import dashboard_of
from everlearn.service.wire import WireError

__all__ = ["create_app"]

STATIC = Path(__file__).parent / "static"
EVERY = 1.0  # seconds between two events
ABOUT = "A durable learner over HTTP: it learns from labelled samples, and predicts at any moment."
# The HTTP status of errors; the message is the answer.
STATUS: dict[type[Exception], int] = {
    WireError: 400,
    NotLearntYet: 409,
    Diverged: 409,
    ValueError: 422,
    TypeError: 422,
    TimeoutError: 409,  # a position that was not reached; clients repeat what a 504 answers
    LiveError: 503,
}


def create_app(
    models: dict[str, ServedModel],
    tokens: Tokens | None = None,
    limits: Limits | None = None,
    any_host: bool = False,
) -> FastAPI:
    """The app of these models, by name.

    tokens: who may call what; without any, everybody who reaches the service may call everything.
    any_host: whether requests may name another host than localhost; always true with tokens.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.ready = True
        yield
        app.state.ready = False
        for model in models.values():
            await asyncio.to_thread(model.close)

    app = FastAPI(
        title="everlearn",
        version=everlearn.__version__,
        description=ABOUT,
        lifespan=lifespan,
        docs_url=None,  # its pages load scripts from elsewhere; ours is /docs below
        redoc_url=None,
    )
    app.state.models, app.state.tokens, app.state.limits = models, tokens, limits or Limits()
    app.state.ready, app.state.watchers, app.state.shown = False, 0, {}
    app.add_middleware(Guard, any_host=any_host or bool(tokens))
    app.include_router(router, prefix="/v1", tags=["the only model"])
    app.include_router(router, prefix="/v1/models/{model}", tags=["a model by name"])
    app.include_router(events, prefix="/v1")
    app.include_router(pages)
    for kind, status in STATUS.items():
        app.add_exception_handler(kind, _sentence(status))
    app.add_exception_handler(TooBusy, _busy)
    app.add_exception_handler(Busy, _busy)
    return app


def _sentence(status: int) -> Any:
    async def handler(request: Request, error: Exception) -> Response:
        content = json.dumps(
            {"detail": " ".join(str(error).split())}
        )  # ASCII, whatever characters a label has
        return Response(content, status, media_type="application/json")

    return handler


async def _busy(request: Request, error: Exception) -> Response:
    seconds = error.retry_after if isinstance(error, TooBusy) else 1
    return JSONResponse({"detail": str(error)}, 429, {"Retry-After": str(seconds)})


events = APIRouter()


@events.get("/models", dependencies=[Depends(needs("predict"))])
async def list_models(request: Request) -> Response:
    """The models of this service."""
    models: dict[str, ServedModel] = request.app.state.models
    return answer(
        {
            "models": [
                {"name": name, "learner": model.live.learner.name, "position": model.live.position}
                for name, model in models.items()
            ]
        }
    )


@events.get("/models/{model}/events", dependencies=[Depends(needs("predict"))])
@events.get("/events", dependencies=[Depends(needs("predict"))])
async def live_events(request: Request) -> Response:
    """What the dashboard shows, as server-sent events, one per second."""
    model, state = model_of(request), request.app.state
    if state.watchers >= state.limits.dashboards:
        raise TooBusy(f"{state.watchers} dashboards are open already: close one", 5)
    state.watchers += 1

    async def stream() -> AsyncIterator[str]:
        try:
            while state.ready:
                yield await _event(model, state)
                await asyncio.sleep(EVERY)
        finally:
            state.watchers -= 1

    return StreamingResponse(stream(), media_type="text/event-stream")


async def _event(model: ServedModel, state: Any) -> str:
    """What the dashboard shows now; computed once for all that are open."""
    made, text = state.shown.get(model.name, (0.0, ""))
    if time.monotonic() - made > EVERY / 2:
        shown = await asyncio.to_thread(dashboard_of, model, list(state.models))
        text = f"data: {json.dumps(shown, separators=(',', ':'))}\n\n"
        state.shown[model.name] = time.monotonic(), text
    return str(text)


pages = APIRouter(include_in_schema=False)


@pages.get("/healthz")
async def health() -> Response:
    """The process answers."""
    return PlainTextResponse("ok\n")


@pages.get("/readyz")
async def ready(request: Request) -> Response:
    """The models are loaded, and their queues have room."""
    models: dict[str, ServedModel] = request.app.state.models
    full = [name for name, model in models.items() if model.changing >= model.limits.queue]
    if full or not request.app.state.ready:
        reason = f"the queue of {', '.join(full)} is full" if full else "starting or stopping"
        return PlainTextResponse(f"not ready: {reason}\n", 503)
    return PlainTextResponse("ready\n")


@pages.get("/metrics", dependencies=[Depends(needs("predict"))])
async def metrics(request: Request) -> Response:
    """Figures for Prometheus."""
    content, kind = await asyncio.to_thread(exposition, request.app.state.models)
    return Response(content, media_type=kind)


@pages.get("/")
async def dashboard() -> Response:
    """The dashboard."""
    return FileResponse(STATIC / "dashboard.html")


@pages.get("/docs")
async def docs() -> Response:
    """The documentation of the operations, from /openapi.json."""
    return FileResponse(STATIC / "docs.html")


@pages.get("/static/{name}")
async def static(name: str) -> Response:
    """Scripts and styles of the pages."""
    known = {path.name: path for path in STATIC.iterdir()}
    if name not in known:
        raise HTTPException(404, "there is no such file")
    return FileResponse(known[name])
