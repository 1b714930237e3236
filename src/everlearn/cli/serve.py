"""`everlearn serve`: durable learners over HTTP."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from everlearn.cli.flags import in_one_sentence
from everlearn.service.limits import Limits

__all__ = ["ServeFlags", "command", "parse"]


OF_A_LEARNER = ("learner", "network", "encoder", "seed", "device")  # flags that make a new one


@dataclasses.dataclass(frozen=True)
class ServeFlags:
    """Serve the learners in one or several folders over HTTP, with a dashboard. A folder that is new is created."""

    folders: tyro.conf.Positional[tuple[str, ...]] = ()
    """the folders, each FOLDER or NAME=FOLDER"""
    host: str = "127.0.0.1"
    """the address to listen on; any other than this machine's own needs --tokens"""
    port: int = 8000
    """the port to listen on; 0 for any that is free"""
    tokens: Path | None = None
    """the file of tokens, from `everlearn token create`"""
    journal: str | None = None
    """postgresql://user@host/database for journal and snapshots, so that another machine can continue"""
    backend: Literal["process", "ray"] = "process"
    """process: all in this one; ray: a Ray cluster, with an actor per learner that is started again if it dies"""
    replicas: int = 2
    """processes that answer requests, with --backend ray"""
    detector: str | None = None
    """a drift detector of River's, such as ADWIN, for the answers whose labels are told"""
    act: bool = False
    """let the detector act: at each alarm, the classes that are present lose the older half of their exemplars"""
    sources: Annotated[tuple[str, ...], tyro.conf.arg(name="from", metavar="URL")] = ()
    """streams of messages to learn from: redis://host:port/stream or kafka://host:port/topic, or NAME=URL"""
    batch_size: int = 10
    """messages of such a stream that are learnt together"""
    learner: str = "cope"
    """the learner of a new folder, by name; the flags of its settings apply to new folders, too"""
    network: str | None = None
    """the network of a new folder: mlp, slim-resnet18 or identity; by default mlp, with an encoder identity"""
    encoder: str | None = None
    """the frozen model of a new folder that turns samples into vectors: wordllama for texts, efficientnet-lite0 for
    images"""
    seed: int = 0
    """the seed of a new folder"""
    device: str = "auto"
    """auto, cpu, cuda, …, for a new folder"""


def command(words: list[str]) -> int:
    """Serve until the process is stopped."""
    flags, limits, settings = parse(words)
    _check_installed()
    from everlearn import learners
    from everlearn.live import holds_learner
    from everlearn.service.run import name_folders, serve

    if flags.act and flags.detector is None:
        raise ValueError("--act lets a drift detector act: name one, such as --detector ADWIN")
    folders = name_folders(flags.folders).values()
    new = [folder for folder in folders if not holds_learner(folder, flags.journal)]
    kind = learners.find(flags.learner)
    if len(new) > 1:
        raise ValueError(
            f"{' and '.join(map(str, new))} are new: create one at a time, each with its own learner"
        )
    chosen = [field.name for field in dataclasses.fields(ServeFlags) if field.name in OF_A_LEARNER]
    changed = [name for name in chosen if getattr(flags, name) != getattr(ServeFlags(), name)]
    changed += [name for name, value in settings.items() if value != getattr(kind.Settings(), name)]
    if changed and not new:
        flag = changed[0].replace("_", "-")
        raise ValueError(
            f"--{flag} is for a new folder: the learner in {flags.folders[0]} keeps its settings; leave it out"
        )
    learner = _new_learner(kind, flags, settings) if new else None
    if flags.backend == "ray":
        return _on_ray(flags, limits, learner)
    serve(
        flags.folders,
        learner,
        host=flags.host,
        port=flags.port,
        tokens=flags.tokens,
        limits=limits,
        drift=None if flags.detector is None else _detector(flags.detector),
        act=flags.act,
        sources=flags.sources,
        batch_size=flags.batch_size,
        journal=flags.journal,
    )
    return 0


def _new_learner(kind: Any, flags: ServeFlags, settings: dict[str, Any]) -> Any:
    from everlearn.encoders import as_encoder, may_load_by_itself

    encoder = as_encoder(flags.encoder)
    if encoder is not None and not may_load_by_itself(encoder.name):
        raise ValueError(
            f"the encoder {encoder.name} would not be loaded by itself when the folder is opened again: take one "
            "whose weights come with its package, wordllama or efficientnet-lite0"
        )
    return kind(flags.network, seed=flags.seed, device=flags.device, encoder=encoder, **settings)


def _on_ray(flags: ServeFlags, limits: Limits, learner: Any) -> int:
    """Serve on a Ray cluster until the process is stopped."""
    import signal
    import sys
    import threading

    from everlearn.service.run import name_folders, name_sources, open_tokens
    from everlearn.service.sockets import check_port

    check_port(flags.port, least=1)
    if flags.replicas < 1:
        raise ValueError(f"replicas must be at least 1, not {flags.replicas}")
    folders, tokens = name_folders(flags.folders), open_tokens(flags.host, flags.tokens)
    try:
        from ray import serve as _  # noqa: F401
    except ImportError:
        raise ImportError("--backend ray needs Ray Serve: run `pip install 'everlearn[serve-ray]'`") from None
    from everlearn.service.on_ray import serve_on_ray, stop_on_ray

    serve_on_ray(
        folders,
        learner,
        host=flags.host,
        port=flags.port,
        replicas=flags.replicas,
        tokens=tokens,
        limits=limits,
        journal=flags.journal,
        drift=None if flags.detector is None else _detector(flags.detector),
        act=flags.act,
        sources=name_sources(flags.sources, list(folders)),
        batch_size=flags.batch_size,
    )
    stopped = threading.Event()
    for kind in (signal.SIGINT, signal.SIGTERM):  # after Ray has set its own handlers
        signal.signal(kind, lambda *_: stopped.set())
    where = f"http://{flags.host}:{flags.port} on Ray"
    print(f"everlearn serves {', '.join(folders)} at {where}", file=sys.stderr, flush=True)
    stopped.wait()
    stop_on_ray(list(folders))
    return 0


def parse(words: list[str]) -> tuple[ServeFlags, Limits, dict[str, Any]]:
    """The flags, the limits, and the settings of the learner."""
    from everlearn import learners

    known = [word for word in words if word not in ("-h", "--help")]
    first = in_one_sentence(
        lambda: tyro.cli(ServeFlags, args=known, return_unknown_args=True, add_help=False)
    )[0]
    kind = learners.find(first.learner)
    flat = tyro.conf.OmitArgPrefixes
    both = dataclasses.make_dataclass(
        "Serve",
        [
            ("what", Annotated[ServeFlags, flat], dataclasses.field(default=first)),
            ("limits", Limits, dataclasses.field(default=Limits())),
            ("settings", Annotated[kind.Settings, flat], dataclasses.field(default=kind.Settings())),
        ],
    )
    prog = "everlearn serve"
    given: Any = in_one_sentence(
        lambda: tyro.cli(both, args=words, prog=prog, description=ServeFlags.__doc__)
    )
    if not given.what.folders:
        raise ValueError("no folder is given: `everlearn serve FOLDER`")
    return given.what, given.limits, vars(given.settings)


def _detector(name: str) -> Any:
    """A drift detector of River's, by the name of its class."""
    try:
        from river import drift
    except ImportError:
        raise ImportError("--detector needs River: run `pip install 'everlearn[river]'`") from None
    from everlearn.messages import nearest

    known = [each for each in dir(drift) if each[0].isupper() and hasattr(getattr(drift, each), "update")]
    if name not in known:
        raise ValueError(f"River has no drift detector {name!r}{nearest(name, known)}")
    return getattr(drift, name)


def _check_installed() -> None:
    for module in ("fastapi", "uvicorn", "prometheus_client"):
        try:
            __import__(module)
        except ImportError:
            raise ImportError(
                f"the service needs the package {module}: run `pip install 'everlearn[serve]'`"
            ) from None
