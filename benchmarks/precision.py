"""What mixed precision saves on a GPU: one step, captured, in full and in mixed precision.

    python benchmarks/precision.py [--repeat 60]

A step is forward, backward and SGD from a given gradient of the embedding. Several seeds are branches of one CUDA
graph, as in a cohort; the time is that of the graph divided by their number.
"""

from __future__ import annotations

import argparse
import time

import torch
from torch import Tensor, nn

from everlearn.networks import SlimResNet18, embedding_network

# The network, the images in a step, and the seeds at once.
CASES = [("slim-resnet18", 50, 1), ("slim-resnet18", 50, 5), ("resnet18", 74, 1), ("resnet18", 74, 3)]
WAYS = {"full": (False, False), "full, channels-last": (False, True), "mixed": (True, True)}


def network(name: str, seed: int, mixed: bool, by_pixel: bool) -> nn.Module:
    """The named network on the GPU, in train mode."""
    torch.manual_seed(seed)
    made = embedding_network(name, (3, 32, 32), 400, 256).cuda().train()
    for part in made.modules():
        if isinstance(part, SlimResNet18):
            part.mixed = mixed
    return made.to(memory_format=torch.channels_last) if by_pixel else made  # type: ignore[call-overload]


def step(made: nn.Module, x: Tensor, slope: Tensor) -> None:
    """Forward, backward and SGD."""
    parameters = list(made.parameters())
    gradients = torch.autograd.grad(made(x), parameters, slope)
    with torch.no_grad():
        torch._foreach_add_(parameters, list(gradients), alpha=-1e-6)


def microseconds(name: str, images: int, seeds: int, mixed: bool, by_pixel: bool, repeat: int) -> float:
    """The time of one step of one seed."""
    made = [network(name, seed, mixed, by_pixel) for seed in range(seeds)]
    streams = [torch.cuda.Stream() for _ in made]
    x, slope = torch.rand(images, 3, 32, 32, device="cuda"), torch.randn(images, 256, device="cuda")

    def all_steps() -> None:
        main = torch.cuda.current_stream()
        begun, ends = main.record_event(), []
        for each, stream in zip(made, streams, strict=True):
            with torch.cuda.stream(stream):
                stream.wait_event(begun)
                step(each, x, slope)
                ends.append(stream.record_event())
        for end in ends:
            main.wait_event(end)

    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(3):
            all_steps()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        all_steps()
    torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(repeat):
        graph.replay()
    torch.cuda.synchronize()
    return (time.perf_counter() - started) / repeat / seeds * 1e6


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=60, help="how often the graph is replayed")
    given = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("this benchmark needs an NVIDIA GPU")
    print(torch.cuda.get_device_name(), f"torch {torch.__version__}")
    for name, images, seeds in CASES:
        found = {way: microseconds(name, images, seeds, *kind, given.repeat) for way, kind in WAYS.items()}
        for way, time_ in found.items():
            ratio = found["full"] / time_
            print(
                f"{name}, {images} images, {seeds} at once, {way}: {time_:,.0f} µs, {ratio:.2f} times as fast"
            )


if __name__ == "__main__":
    main()
