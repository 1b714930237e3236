"""The service on a Ray cluster: Ray Serve runs the HTTP replicas, and one actor owns each learner.

The actor makes all changes and puts snapshots into Ray's object store, from which every replica predicts. If the
actor or its node dies, Ray starts it again, elsewhere if need be, and it recovers from its journal. Meanwhile the
replicas go on predicting, and repeat changes that were not answered with the same request id: they are applied once.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from everlearn.core.learner import Learner
from everlearn.live import LiveError, LiveSnapshot
from everlearn.live.statistics import DriftDetector
from everlearn.service.limits import Limits
from everlearn.service.ray_actor import PATIENCE, ActorOptions, LearnerActor
from everlearn.service.sources import open_source
from everlearn.service.tokens import Tokens

__all__ = ["RemoteLive", "serve_on_ray", "stop_on_ray"]

REFRESH = 0.05  # seconds for which a replica uses a snapshot before it asks for a newer one
WAIT = 5.0  # seconds that it then waits for one
CALLS = 64  # at the same time in an actor
APP = "everlearn"


class RemoteLive:
    """A live learner in an actor, with the methods of `Live` that the service uses.

    position: of the last change that this replica knows of.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.position = 0
        self._closed = threading.Event()
        self._seen = self._fetch(0, PATIENCE)
        threading.Thread(target=self._follow, name="snapshots", daemon=True).start()

    def _actor(self) -> Any:
        import ray

        return ray.get_actor(actor_name(self._name), namespace=APP)

    def _call(self, make: Callable[[Any], Any], timeout: float | None = None) -> Any:
        """The result of a call; while the actor is being started again, the call is repeated."""
        import ray

        end = time.monotonic() + PATIENCE
        while True:
            try:
                return ray.get(make(self._actor()), timeout=timeout)
            except ray.exceptions.RayTaskError as error:
                raise error.cause from None
            except (ray.exceptions.RayActorError, ray.exceptions.ObjectLostError, ValueError) as error:
                if time.monotonic() > end:
                    raise LiveError(f"{self._name} does not come back: {error}") from None
                time.sleep(0.1)

    # Changes.

    def _change(self, method: str, *args: Any, request_id: str | None = None, **kwargs: Any) -> Any:
        kwargs["request_id"] = request_id or uuid.uuid4().hex
        result, position = self._call(lambda actor: actor.change.remote(method, args, kwargs))
        self.position = max(self.position, position)
        return result

    def observe(self, x: Any, y: Any, ids: Any = None, **kwargs: Any) -> None:
        """Learn from a batch."""
        self._change("observe", x, y, ids, **kwargs)

    def ask(self, ids: Any, x: Any, **kwargs: Any) -> Any:
        """Predict, and store the samples until `tell`."""
        return self._change("ask", ids, x, **kwargs)

    def tell(self, ids: Any, y: Any, t: Any = None, **kwargs: Any) -> Any:
        """Learn from samples given to `ask` earlier."""
        return self._change("tell", ids, y, t, **kwargs)

    def forget(self, label: Any, **kwargs: Any) -> None:
        """Remove a class."""
        self._change("forget", label, **kwargs)

    def delete(self, ids: Any, **kwargs: Any) -> Any:
        """Delete samples."""
        return self._change("delete", ids, **kwargs)

    def correct(self, ids: Any, labels: Any, **kwargs: Any) -> Any:
        """Put labels right."""
        return self._change("correct", ids, labels, **kwargs)

    def save(self) -> int:
        """Write a snapshot to disk."""
        return int(self._call(lambda actor: actor.read.remote("save")))

    # Predictions, and what there is.

    def snapshot(self, min_position: int = 0, timeout: float = 60.0) -> LiveSnapshot:
        """The newest snapshot here, at once; or one that includes a position, when there is one."""
        return self._fetch(min_position, timeout) if min_position > self._seen.position else self._seen

    def _follow(self) -> None:
        """Fetch every newer snapshot, with a pause in between."""
        while not self._closed.wait(REFRESH):
            with contextlib.suppress(TimeoutError, LiveError):
                self._fetch(self._seen.position + 1, WAIT)

    def _fetch(self, min_position: int, timeout: float) -> LiveSnapshot:
        (reference,), position, facts = self._call(lambda actor: actor.snapshot.remote(min_position, timeout))
        seen: LiveSnapshot = self._call(lambda _: reference)
        self.learner = SimpleNamespace(**vars(facts), footprint=lambda: {"memory": facts.memory_bytes})
        self._seen = seen
        self.position = max(self.position, position)
        return seen

    @property
    def classes(self) -> list[Any]:
        """The labels seen so far."""
        return self.snapshot().classes

    def status(self) -> dict[str, Any]:
        """What the learner holds and how well it does."""
        return dict(self._read("status"))

    def history(self) -> list[dict[str, Any]]:
        """The last events."""
        return list(self._read("history"))

    def curve(self) -> list[Any]:
        """The accuracy over time."""
        return list(self._read("curve"))

    def confusion(self) -> dict[Any, int]:
        """How often a label got an answer."""
        return dict(self._read("confusion"))

    def mistakes(self) -> list[Any]:
        """The last wrong answers."""
        return list(self._read("mistakes"))

    def suggest(self, n: int) -> list[Any]:
        """The waiting samples whose labels would teach most."""
        return list(self._read("suggest", n))

    def _read(self, method: str, *args: Any) -> Any:
        return self._call(lambda actor: actor.read.remote(method, *args))

    def consumed(self) -> dict[str, Any]:
        """What became of the messages of the learner's source."""
        return dict(self._call(lambda actor: actor.consumed.remote()))

    def close(self) -> None:
        """End the thread; the actor goes on."""
        self._closed.set()


class RemoteConsumer:
    """The consumer of messages in a learner's actor."""

    def __init__(self, live: RemoteLive) -> None:
        self._live = live

    def status(self) -> dict[str, Any]:
        """The source and what became of its messages."""
        return self._live.consumed()

    def close(self) -> None:
        """Nothing to do: the actor goes on."""


def actor_name(model: str) -> str:
    """The name of a model's actor."""
    return f"learner-{model}"


def serve_on_ray(
    folders: dict[str, Path],
    learner: Learner | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    replicas: int = 2,
    tokens: Tokens | None = None,
    limits: Limits | None = None,
    journal: str | None = None,
    drift: Callable[[], DriftDetector] | None = None,
    sources: dict[str, str] | None = None,
    batch_size: int = 10,
    act: bool = False,
    address: str | None = None,
) -> None:
    """Start the actors and the replicas, and return when they answer. Stop them with `stop_on_ray`.

    drift: makes a drift detector for each learner. act: let these act. sources: addresses of streams of messages to
    learn from, by model.
    address: of the cluster; by default that of this machine, else a new one.
    """
    import ray
    from ray import serve

    consumed = sources or {}
    for url in consumed.values():  # an address that is wrong is an error here, not in an actor
        open_source(url).close()
    if not ray.is_initialized():
        ray.init(address=address, namespace=APP, log_to_driver=False, logging_level=logging.ERROR)
    kind: Any = ray.remote(LearnerActor)
    for name, folder in folders.items():
        kind.options(
            name=actor_name(name),
            namespace=APP,
            lifetime="detached",
            get_if_exists=True,
            max_restarts=-1,
            max_concurrency=CALLS,
            num_cpus=0,
        ).remote(
            str(folder.resolve()),
            learner,
            ActorOptions(journal, drift, consumed.get(name), batch_size, act),
        )
    names, limits = list(folders), limits or Limits()

    def build() -> Any:
        from everlearn.service.app import create_app
        from everlearn.service.served import ServedModel

        models = {name: ServedModel(name, RemoteLive(name), limits) for name in names}  # type: ignore[arg-type]
        for name in consumed:
            models[name].consumer = RemoteConsumer(models[name].live)  # type: ignore[arg-type]
        return create_app(models, tokens, limits)

    serve.start(http_options={"host": host, "port": port}, logging_config={"log_level": "ERROR"})
    deployment: Any = serve.deployment(serve.ingress(build)(), name="http")
    options = deployment.options(
        num_replicas=replicas, max_ongoing_requests=1000, ray_actor_options={"num_cpus": 0}
    )
    serve.run(options.bind(), name=APP, route_prefix="/")


def stop_on_ray(folders: Sequence[str]) -> None:
    """Stop the replicas and the actors; the learners are saved."""
    import ray
    from ray import serve

    known: Any = ray
    serve.delete(APP)
    for name in folders:
        with contextlib.suppress(ValueError, known.exceptions.RayError):
            actor = known.get_actor(actor_name(name), namespace=APP)
            known.get(actor.close.remote(), timeout=PATIENCE)
            known.kill(actor)
