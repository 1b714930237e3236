"""A service that really listens, in a thread of the test."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager

import httpx
import uvicorn

from everlearn import CoPE, open_live
from everlearn.service.app import create_app
from everlearn.service.limits import Limits
from everlearn.service.served import ServedModel


def small(**settings):
    """A small learner."""
    return CoPE("mlp", **{"memory_size": 20, "hidden": 16, "seed": 0, "device": "cpu", **settings})


class Service:
    """A running service: its address, its models, its app, and a client of HTTP."""

    def __init__(self, url, models, app):
        self.url, self.models, self.app = url, models, app
        self.http = httpx.Client(timeout=60)

    @property
    def model(self):
        return next(iter(self.models.values()))


@contextmanager
def running(folder, names=("model",), learner=small, tokens=None, limits=None, drift=None):
    """A service with a model per name, in folders of these names."""
    limits = limits or Limits()
    models = {}
    for name in names:
        new = not (folder / name / "live.json").exists()
        live = open_live(folder / name, learner() if new else None, drift=drift)
        models[name] = ServedModel(name, live, limits)
    app = create_app(models, tokens, limits)
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started and thread.is_alive():
            time.sleep(0.005)
        port = server.servers[0].sockets[0].getsockname()[1]
        service = Service(f"http://127.0.0.1:{port}", models, app)
        with service.http:
            yield service
    finally:
        server.should_exit = True
        thread.join()
