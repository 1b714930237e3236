"""The same bits by hand, in a run, in a resumed run and in another process, with any number of threads."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

PROGRAM = """
import hashlib, json, multiprocessing, sys, tempfile
from pathlib import Path
import torch
from everlearn import Evaluator, as_stream, learner, run

CASES = {
    "cope": ("cope", "mlp", (300,)),
    "reservoir": ("reservoir", "mlp", (300,)),
    "images": ("cope", "slim-resnet18", (3, 8, 8)),
}

class Stop(BaseException):
    pass

def batches(shape, count=3, size=6):
    generator = torch.Generator().manual_seed(0)
    y = [[(place + 2 * number) % 5 for place in range(size)] for number in range(count)]
    return [(torch.randn(size, *shape, generator=generator), labels) for labels in y]

def made(case):
    name, network, shape = CASES[case]
    return learner(name, network=network, memory_size=20, device="cpu"), batches(shape)

def digest(student, source):
    parts = [part for name, part in sorted(student.state_dict().items()) if name != "meta"]
    proba = torch.from_numpy(student.predict_proba(torch.cat([x for x, _ in source])))
    content = b"".join(part.contiguous().flatten().view(torch.uint8).numpy().tobytes() for part in [*parts, proba])
    return hashlib.sha256(content).hexdigest()

def by_hand(case):
    student, source = made(case)
    for x, y in source:
        student.observe(x, y)
    return digest(student, source)

def in_a_run(case):
    student, source = made(case)
    run(student, source)
    return digest(student, source)

def resumed(case):
    with tempfile.TemporaryDirectory() as folder:
        options = {"evaluator": Evaluator(every=1), "checkpoint": Path(folder, "run")}
        student, source = made(case)
        def stop(samples):
            if student.batches == 2:
                raise Stop
        try:
            run(student, source, progress=stop, **options)
        except Stop:
            pass
        student, source = made(case)
        run(student, source, **options)
    return digest(student, source)

def measured(case):
    student, source = made(case)
    tests = [(torch.cat([x for x, _ in source] * 9), [label for _, y in source for label in y] * 9)]
    last = run(student, as_stream(source, tests=tests), Evaluator(representation=True)).history[-1]
    return repr((last.accuracies, last.prototype_truth, last.variance, last.prototype_shift))

if __name__ == "__main__":
    # A fork saves the imports; it is safe as long as no thread of torch's has started.
    kind = "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"
    with multiprocessing.get_context(kind).Pool(1) as pool:
        elsewhere = pool.map(in_a_run, CASES)
    found = {case: {way.__name__: way(case) for way in (by_hand, in_a_run, resumed)} for case in CASES}
    for case, bits in zip(CASES, elsewhere, strict=True):
        found[case]["in another process"] = bits
    print(json.dumps(found | {"measured": measured("cope")}))
"""

MACHINES = {
    "1 thread": {"OMP_NUM_THREADS": "1"},
    "2 threads": {"OMP_NUM_THREADS": "2"},
    "4 threads": {"OMP_NUM_THREADS": "4"},
    "plain instructions": {"ATEN_CPU_CAPABILITY": "default", "OMP_NUM_THREADS": "2"},
    "oneDNN with AVX2": {"ONEDNN_MAX_CPU_ISA": "AVX2", "OMP_NUM_THREADS": "2"},
    "MKL with AVX2": {"MKL_ENABLE_INSTRUCTIONS": "AVX2", "OMP_NUM_THREADS": "2"},
}
THREADS = ("1 thread", "2 threads", "4 threads")
CASES = ("cope", "reservoir", "images")


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What the program prints on each of these machines."""
    program = tmp_path_factory.mktemp("program") / "program.py"
    program.write_text(PROGRAM)
    others = {name: value for name, value in os.environ.items() if name != "MKL_NUM_THREADS"}
    others["OMP_WAIT_POLICY"] = (
        "PASSIVE"  # more threads than cores would otherwise wait for each other in loops
    )

    def output(machine):
        return subprocess.check_output([sys.executable, program], env={**others, **machine})

    with ThreadPoolExecutor(2) as pool:
        return {
            name: json.loads(out)
            for name, out in zip(MACHINES, pool.map(output, MACHINES.values()), strict=True)
        }


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("case", CASES)
def test_observing_by_hand_a_run_a_resumed_run_and_another_process_give_the_same_bits(found, machine, case):
    assert len(found[machine][case]) == 4
    assert len(set(found[machine][case].values())) == 1, found[machine][case]


@pytest.mark.parametrize("case", CASES)
def test_the_number_of_threads_of_the_process_changes_no_bit(found, case):
    assert len({found[machine][case]["by_hand"] for machine in THREADS}) == 1


def test_the_number_of_threads_of_the_process_changes_no_measurement(found):
    assert len({found[machine]["measured"] for machine in THREADS}) == 1
