"""Open folders and serve them."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from everlearn.core.learner import Learner
from everlearn.live import holds_learner, open_live
from everlearn.messages import nearest
from everlearn.service.limits import Limits
from everlearn.service.security import is_loopback
from everlearn.service.sockets import listen
from everlearn.service.sources import open_source
from everlearn.service.tokens import Tokens

__all__ = ["name_folders", "name_sources", "open_tokens", "serve"]

CONNECTIONS = 1000  # at the same time; further ones get 503


def name_folders(folders: Sequence[str | os.PathLike[str]]) -> dict[str, Path]:
    """The folders by the names of their models: `name=folder`, or the name of the folder itself.

    >>> name_folders(["tickets=/data/a", "/data/cameras"])
    {'tickets': PosixPath('/data/a'), 'cameras': PosixPath('/data/cameras')}
    """
    named: dict[str, Path] = {}
    for given in map(str, folders):
        name, equals, path = given.partition("=")
        folder = Path(path if equals else given)
        name = name if equals else folder.resolve().name
        if not name or not all(letter.isalnum() or letter in "-_." for letter in name) or len(name) > 100:
            raise ValueError(
                f"a model's name has letters, digits, '-', '_' and '.', not {name!r}: NAME=FOLDER"
            )
        if name in named:
            raise ValueError(f"two models are called {name}: name them, as in {name}-2={folder}")
        named[name] = folder
    if not named:
        raise ValueError("no folder is given: `everlearn serve FOLDER`")
    return named


def name_sources(sources: Sequence[str], models: Sequence[str]) -> dict[str, str]:
    """The sources by the names of their models; without a name, that of the only model."""
    named: dict[str, str] = {}
    for given in sources:
        name, _, url = given.rpartition("=") if "=" in given.partition("://")[0] else ("", "", given)
        if not name and len(models) > 1:
            raise ValueError(f"there are several models: --from {models[0]}={url}")
        name = name or models[0]
        if name not in models:
            raise ValueError(f"there is no model {name!r}{nearest(name, models)}")
        if name in named:
            raise ValueError(f"{name} has two sources; a model can have one")
        named[name] = url
    return named


def open_tokens(host: str, tokens: str | os.PathLike[str] | None) -> Tokens | None:
    """The tokens of a service; raises a ValueError if it needs some and has none."""
    known = None if tokens is None else Tokens(tokens)
    if known is not None and not len(known):
        raise ValueError(f"{known.path} has no token: run `everlearn token create NAME --file {known.path}`")
    if known is None and not is_loopback(host):
        raise ValueError(
            f"others can reach {host}, so the service needs a token: run `everlearn token create NAME --file "
            "tokens.json`, then serve with `--tokens tokens.json`"
        )
    return known


def serve(
    folders: Sequence[str | os.PathLike[str]],
    learner: Learner | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    tokens: str | os.PathLike[str] | None = None,
    limits: Limits | None = None,
    drift: Any = None,
    act: bool = False,
    sources: Sequence[str] = (),
    batch_size: int = 10,
    journal: str | None = None,
) -> None:
    """Serve the learners in these folders over HTTP, until the process is stopped.

    learner: for a folder that is new. tokens: the file of tokens; needed for another host than this machine.
    drift: a class of drift detectors. act: let these act, see `open_live`. sources: streams of messages to consume,
    each URL or NAME=URL, in batches of `batch_size`. journal: where journal and snapshots are, if not in the folders;
    see `open_live`.
    """
    from everlearn.service.app import create_app
    from everlearn.service.served import ServedModel

    named, limits = name_folders(folders), limits or Limits()
    consumed = name_sources(sources, list(named))
    known = open_tokens(host, tokens)
    opened = {name: open_source(url) for name, url in consumed.items()}
    sockets = listen(host, port)
    models: dict[str, ServedModel] = {}
    try:
        for name, folder in named.items():
            given = None if holds_learner(folder, journal) else learner
            detector = None if drift is None else drift()
            live = open_live(folder, given, journal=journal, drift=detector, act=act)
            models[name] = ServedModel(name, live, limits)
            if name in opened:
                models[name].consume(opened[name], batch_size)
    except BaseException:
        for model in models.values():
            model.close()
        for each in sockets:
            each.close()
        raise
    # Threads that learn hold the interpreter in turn with the one that answers; shorter turns, faster answers.
    sys.setswitchinterval(0.001)
    app = create_app(models, known, limits)
    shown = f"[{host}]" if ":" in host else host
    where = f"http://{shown}:{sockets[0].getsockname()[1]}"
    print(
        f"everlearn serves {', '.join(models)} at {where} (docs: /docs)",
        file=sys.stderr,
        flush=True,
    )
    _answer(app, sockets)


def _answer(app: Any, sockets: list[socket.socket]) -> None:
    """Answer requests until the process is stopped."""
    import uvicorn
    from uvicorn.protocols.http.auto import AutoHTTPProtocol

    from everlearn.service.connections import closing_idle

    config = uvicorn.Config(
        app,
        http=closing_idle(AutoHTTPProtocol),
        ws="none",
        log_level="warning",
        access_log=False,
        limit_concurrency=CONNECTIONS,
        timeout_graceful_shutdown=5,
    )

    class Server(uvicorn.Server):
        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            app.state.ready = False  # ends the events of dashboards, which would be cut off after a while
            await super().shutdown(sockets)

    with contextlib.suppress(KeyboardInterrupt):
        Server(config).run(sockets)
