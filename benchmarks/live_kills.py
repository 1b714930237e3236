"""Kill a live learner at random moments under load, and look at what was lost.

    python benchmarks/live_kills.py [--kills 1000] [--seed 0]

A process sends numbered requests to a live learner (observe, ask, tell, and now and then delete and correct) and
reports each one that returned. It is killed with SIGKILL after a random time. Another process opens the
folder and goes on with the request that was under way, with the same request id. After every kill:

- every request that had returned must be in the learner (lost otherwise), and none twice;
- the learner must have the same bits as one in memory that got the same requests and was never killed.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import os
import random
import shutil
import signal
import struct
import tempfile
import time
import traceback
from pathlib import Path

import torch

from everlearn import CoPE, open_live
from everlearn.live import Live
from everlearn.live.entries import Change, Entry
from everlearn.live.model import Model

FEATURES, BATCH, CLASSES = 12, 4, 5
EVERY = 6  # changes between snapshots, so that many kills hit one
MOST, LONGEST = 12, 0.01  # requests that return before a kill, and the seconds from there to it
OPENED, RETURNED = struct.Struct("<q32s"), struct.Struct("<q")


def learner() -> CoPE:
    """A small learner."""
    return CoPE("mlp", memory_size=20, hidden=16, embedding=8, device="cpu", seed=0)


def request(number: int) -> Change:
    """The request with this number."""
    generator = torch.Generator().manual_seed(number)
    x = torch.randn(BATCH, FEATURES, generator=generator)
    y = torch.randint(CLASSES, (BATCH,), generator=generator).tolist()
    ids = [f"{number // 3}/{i}" for i in range(BATCH)]
    name = {"request": f"request {number}"}
    if number % 50 == 49:
        return Change.make("delete", ids=[f"{number // 3 - 1}/{i}" for i in range(2)], **name)
    if number % 20 == 19:
        return Change.make("correct", ids=ids[:2], labels=y[:2], **name)
    if number % 3 == 1:
        return Change.make("ask", x, ids=ids, **name)
    if number % 3 == 2:
        return Change.make("tell", ids=ids, labels=y, **name)
    return Change.make("observe", x, labels=y, ids=ids, **name)


def send(live: Live, change: Change) -> None:
    """Make a request as a user would."""
    ids, name = change.ids, change.request_id
    if change.kind == "observe":
        live.observe(change.x(), change.labels, ids, request_id=name)
    elif change.kind == "ask":
        live.ask(ids, change.x(), request_id=name)
    elif change.kind == "tell":
        live.tell(ids, change.labels, request_id=name)
    elif change.kind == "correct":
        live.correct(ids, change.labels, request_id=name)
    else:
        live.delete(ids, request_id=name)


def load_until_killed(folder: Path, first: int, requests: int, seconds: float) -> tuple[int, bytes, int]:
    """Open the folder and send requests from this number on, in a process that is killed.

    It is killed so many seconds after so many requests have returned.

    Returns the position and a digest of the learner when it was opened, and the number of requests that had returned.
    """
    receives, sends = os.pipe()
    process = os.fork()
    if process == 0:
        try:
            torch.set_num_threads(1)
            live = open_live(folder, learner(), snapshot_every=EVERY)
            os.write(sends, OPENED.pack(live.position, digest(live.learner)))
            number = first
            while True:
                send(live, request(number))
                number += 1
                os.write(sends, RETURNED.pack(number))
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    os.close(sends)
    with os.fdopen(receives, "rb") as pipe:
        position, bits = OPENED.unpack(pipe.read(OPENED.size))
        some = pipe.read(requests * RETURNED.size)
        time.sleep(seconds)
        os.kill(process, signal.SIGKILL)
        _, status = os.waitpid(process, 0)
        if not os.WIFSIGNALED(status):
            raise RuntimeError("the process ended by itself")
        returned = [number for (number,) in RETURNED.iter_unpack(some + pipe.read())]
    return position, bits, max(returned, default=first)


def digest(learner: CoPE) -> bytes:
    """A digest of every bit of a learner's state."""
    state = learner.state_dict()
    found = hashlib.sha256(state.pop("meta").encode())
    for name in sorted(state):
        found.update(f"{name} {state[name].dtype} {tuple(state[name].shape)}".encode())
        found.update(state[name].contiguous().numpy().tobytes())
    return found.digest()


@dataclasses.dataclass
class Outcome:
    """What was found after the kills."""

    kills: int = 0
    requests: int = 0
    lost: int = 0
    twice: int = 0
    different: int = 0


def kill_often(folder: Path, kills: int, seed: int = 0) -> Outcome:
    """Kill a live learner so often; the folder is new."""
    chance = random.Random(seed)
    outcome = Outcome(kills)
    never_killed = Model(learner())
    returned = 0
    for _ in range(kills + 1):
        # The request that was under way is sent again, whether it was applied or not.
        before = returned
        position, bits, returned = load_until_killed(
            folder, before, chance.randrange(MOST), chance.uniform(0, LONGEST)
        )
        outcome.lost += max(before - position, 0)
        outcome.twice += max(position - before - 1, 0)
        while never_killed.position < position:
            number = never_killed.position
            never_killed.apply(Entry(number + 1, 0.0, request(number)))
        outcome.different += bits != digest(never_killed.learner)
    outcome.requests = returned
    return outcome


def main() -> None:
    """Kill and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp())
    try:
        found = kill_often(folder / "live", arguments.kills, arguments.seed)
    finally:
        shutil.rmtree(folder)
    print(
        f"{found.kills:,} kills, {found.requests:,} requests applied: {found.lost} lost, "
        f"{found.twice} applied twice, {found.different} states with other bits"
    )


if __name__ == "__main__":
    main()
