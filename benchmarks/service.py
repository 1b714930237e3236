"""How fast the service learns and predicts over HTTP, compared with a plain learner in the same process and run.

The service runs in its own process, and so do the clients that send batches of 10 and the one that predicts one
sample at a time while the others learn at full speed. MLP 2 x 400, MNIST-sized samples.

    python benchmarks/service.py [--clients 8] [--seconds 10] [--json]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from everlearn import Client

FEATURES, CLASSES, BATCH = 784, 10, 10


def samples(count: int, seed: int) -> tuple[Any, list[int]]:
    """Bytes like those of images, with a blob for each class."""
    random = np.random.default_rng(seed)
    y = random.integers(0, CLASSES, count)
    centres = np.random.default_rng(0).integers(0, 200, (CLASSES, FEATURES))
    return (centres[y] + random.integers(0, 56, (count, FEATURES))).astype(np.uint8), y.tolist()


def plain_rate(seconds: float) -> float:
    """Samples per second of a learner without journal and network."""
    from everlearn import CoPE

    learner = CoPE("mlp", memory_size=2000, device="cpu")
    x, y = samples(2000, 1)
    for start in range(0, 300, BATCH):
        learner.observe(x[start : start + BATCH], y[start : start + BATCH])
    begun, count = time.perf_counter(), 0
    while time.perf_counter() - begun < seconds:
        start = count % 2000
        learner.observe(x[start : start + BATCH], y[start : start + BATCH])
        count += BATCH
    return count / (time.perf_counter() - begun)


def learn(url: str, seed: int, start: float, seconds: float, results: Any) -> None:
    """Send batches from `start` on, and report how many samples were acknowledged."""
    client, (x, y), count = Client(url), samples(1000, seed), 0
    client.observe(x[:BATCH], y[:BATCH])
    time.sleep(max(start - time.time(), 0))
    while time.time() < start + seconds:
        place = count % 1000
        client.observe(x[place : place + BATCH], y[place : place + BATCH])
        count += BATCH
    results.put(count)


def predict(url: str, start: float, seconds: float, results: Any) -> None:
    """Predict one sample at a time, with a pause, and report the latencies."""
    client, (x, _) = Client(url), samples(100, 99)
    times: list[float] = []
    time.sleep(max(start - time.time(), 0))
    while time.time() < start + seconds:
        begun = time.perf_counter()
        client.predict(x[len(times) % 100][None])
        times.append(time.perf_counter() - begun)
        time.sleep(0.01)
    results.put(times)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    plain = plain_rate(options.seconds / 2)
    with tempfile.TemporaryDirectory() as folder:
        words = ["serve", str(Path(folder) / "bench"), "--port", str(port), "--device", "cpu"]
        server = subprocess.Popen([sys.executable, "-m", "everlearn", *words], stderr=subprocess.DEVNULL)
        try:
            first, (x, y) = Client(url, retries=12), samples(100, 0)
            first.observe(x, y)
            context = multiprocessing.get_context("spawn")
            results, start = context.Queue(), time.time() + 6.0
            learners = [
                context.Process(target=learn, args=(url, 1 + i, start, options.seconds, results))
                for i in range(options.clients)
            ]
            for process in learners:
                process.start()
            learnt = sum(results.get() for _ in learners)
            start = time.time() + 6.0
            learners = [
                context.Process(target=learn, args=(url, 1 + i, start, options.seconds, results))
                for i in range(options.clients)
            ]
            latencies = context.Queue()
            reader = context.Process(target=predict, args=(url, start, options.seconds, latencies))
            for process in [*learners, reader]:
                process.start()
            meanwhile = sum(results.get() for _ in learners)
            times = np.array(latencies.get()) * 1000
        finally:
            server.terminate()
            server.wait(30)
    figures = {
        "cores": os.cpu_count(),
        "clients": options.clients,
        "plain samples/s": round(plain),
        "samples/s over HTTP": round(learnt / options.seconds),
        "samples/s while predicting": round(meanwhile / options.seconds),
        "ratio": round(learnt / options.seconds / plain, 2),
        "predictions": len(times),
        "p50 ms": round(float(np.percentile(times, 50)), 1),
        "p99 ms": round(float(np.percentile(times, 99)), 1),
    }
    if options.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name:28} {value}")


if __name__ == "__main__":
    main()
