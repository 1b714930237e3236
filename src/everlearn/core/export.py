"""Export of a predictor to ONNX: network, prototypes or softmax, labels, scaling and rejection in one file."""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from everlearn.atomic_write import replace_file
from everlearn.core.calibration import calibrated
from everlearn.core.images import scores_over_views
from everlearn.core.locking import synchronized
from everlearn.core.prediction import NotLearntYet, evaluate
from everlearn.label_json import encode_label
from everlearn.memory.labels import Label
from everlearn.networks import as_input

if TYPE_CHECKING:
    from everlearn.core.learner import Learner

__all__ = ["export_predictor"]

INPUT = "x"
OUTPUTS = ("class_index", "probabilities")
UNKNOWN_WORD, UNKNOWN_NUMBER = "UNKNOWN", -1  # the label of a rejected sample in the file
CHECKED = 64  # samples on which the file is compared with the learner
TOLERANCE = 1e-3  # of their probabilities
COLOURS = re.compile(r"\x1b\[[0-9;]*m")  # in the exporter's messages
TYPES = (torch.uint8, torch.float32, torch.float16, torch.int32, torch.int64)


def export_predictor(learner: Learner, path: str | os.PathLike[str]) -> None:
    """Write the predictor of a learner as it is now to one ONNX file, atomically.

    The input is `x`, a batch of any size in the type that the learner observed. The outputs are `class_index` (the
    position in `classes`, −1 for an UNKNOWN sample), `probabilities`, and, if all labels are strings or all are
    integers, `label`. The metadata entry `labels` has all labels as JSON.

    For samples that come as DataFrames, `x` are rows as `encode` returns them; the metadata entry `columns` has the
    name of each column, how many inputs it has, and its categories in their order.

    An encoder is not part of the file: `x` is then what the encoder gives, and the entry `encoder` names it.

    Before the file is written, its answers are compared with the learner's.
    """
    _check_installed()
    if os.path.isdir(path):  # before it is computed
        raise _not_written(IsADirectoryError(errno.EISDIR, "Is a directory"), path)
    frozen, x = _frozen_with_examples(learner)
    model = _to_onnx(_Predictor(frozen), x, frozen)
    _add_labels(model, frozen.classes, rejects=frozen.rejection is not None)
    _add_metadata(model, frozen)
    content = model.SerializeToString()
    _compare(content, frozen, x)
    try:
        replace_file(path, content)
    except OSError as error:
        raise _not_written(error, path) from None


def _not_written(error: OSError, path: str | os.PathLike[str]) -> OSError:
    """The error with the path that the user gave; it may name none, or a temporary file."""
    return OSError(error.errno, f"can't be written ({error.strerror or error})", os.fspath(path))


@synchronized
def _frozen_with_examples(learner: Learner) -> tuple[Learner, Tensor]:
    """An immutable copy of the learner, and samples like those it learnt from."""
    if not learner.labels:
        raise NotLearntYet(
            f"{type(learner).__name__} has seen no label yet: observe a batch first, then export"
        )
    return learner.snapshot()._frozen, _examples(learner)


class _Predictor(nn.Module):
    """Prediction as one module: samples in, the position of the class and the probabilities out."""

    def __init__(self, frozen: Learner) -> None:
        super().__init__()
        self.network, self.current = frozen.predictor, frozen.network  # with `blend` both predict
        self._frozen = frozen

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        prepared = self._frozen.prepared(as_input(x))
        scores = calibrated(self._frozen, prepared, scores_over_views)
        index, known = scores.argmax(1), self._frozen.rejection
        if known is not None:
            index = torch.where(known.accepts(self._frozen.features(prepared)), index, UNKNOWN_NUMBER)
        return index, scores.softmax(1)


def _examples(learner: Learner) -> Tensor:
    """Samples to trace the predictor and to check the file with: exemplars and, if they are few, made-up ones."""
    assert learner.sample_shape is not None and learner.sample_type is not None
    kind = learner.sample_type
    if kind not in TYPES:
        raise ValueError(
            f"a learner of samples of {kind} can't be exported: observe samples of torch.float32"
        )
    memory = getattr(learner, "memory", None)
    kept: Tensor | None = (
        memory.samples()[0][:CHECKED].cpu() if memory is not None and memory.counts() else None
    )
    if kept is not None and len(kept) >= 2:
        return kept
    shape, generator = (CHECKED, *learner.sample_shape), torch.Generator().manual_seed(0)
    if kind.is_floating_point:
        return torch.randn(shape, generator=generator).to(kind)
    # Integers other than bytes are indices, such as tokens, of which only small ones are known to be valid.
    return torch.randint(256 if kind == torch.uint8 else 2, shape, generator=generator).to(kind)


def _to_onnx(predictor: nn.Module, x: Tensor, frozen: Learner) -> Any:
    """The predictor as an ONNX model whose batch size is free."""
    batch = torch.export.Dim("batch", min=1)
    try:
        with _quiet(), torch.no_grad():
            given = (x.to(frozen.device),)
            traced = torch.export.export(predictor.eval(), given, dynamic_shapes=({0: batch},))
            if any(node.target in DECOMPOSED for node in traced.graph.nodes):
                traced = traced.run_decompositions(DECOMPOSED)
            program = torch.onnx.export(
                traced, dynamo=True, input_names=[INPUT], output_names=list(OUTPUTS), verbose=False
            )
    except Exception as error:
        own = not isinstance(frozen.given, str)
        reason = f" ({' '.join(COLOURS.sub('', str(error)).split())[:200]})" if own else ""
        raise ValueError(
            f"{frozen.name} with the network {frozen.network_name} can't be exported to ONNX, since its prediction "
            f"uses something that ONNX does not have; use save and load instead{reason}"
        ) from error
    assert program is not None
    return program.model_proto


def _distances(x: Tensor, y: Tensor, p: float = 2.0, mode: int | None = None) -> Tensor:
    """The distance of each pair of rows."""
    distances: Tensor = torch.linalg.vector_norm(x[:, None] - y[None], ord=p, dim=2)
    return distances


DECOMPOSED: dict[Any, Any] = {torch.ops.aten.cdist.default: _distances}  # ONNX has no such operator


def _add_labels(model: Any, labels: list[Label], rejects: bool) -> None:
    """Add the output `label`, where all labels have a type that ONNX has too."""
    import onnx
    from onnx import TensorProto, helper

    values: list[Any]
    if all(type(label) is str for label in labels):
        kind, unknown = TensorProto.STRING, UNKNOWN_WORD
        try:
            values = [label.encode() for label in labels if isinstance(label, str)]
        except UnicodeEncodeError:  # half of a surrogate pair, which text in ONNX can't hold
            return
        last: Any = unknown.encode()
    elif all(type(label) is int and -(2**63) <= label < 2**63 for label in labels):
        kind, last, values = TensorProto.INT64, UNKNOWN_NUMBER, list(labels)
    else:
        return
    if rejects:
        if last in values:
            return
        values.append(last)  # the index −1 is the last one
    graph = model.graph
    graph.initializer.append(helper.make_tensor("labels", kind, [len(values)], values))
    graph.node.append(helper.make_node("Gather", ["labels", "class_index"], ["label"], name="label"))
    size = graph.output[0].type.tensor_type.shape.dim[0].dim_param
    graph.output.append(helper.make_tensor_value_info("label", kind, [size]))
    onnx.checker.check_model(model)


def _add_metadata(model: Any, frozen: Learner) -> None:
    from onnx import helper

    about = {
        "everlearn": sys.modules["everlearn"].__version__,
        "learner": frozen.name,
        "network": frozen.network_name,
        **({} if frozen.encoder is None else {"encoder": frozen.encoder.name}),  # which makes the input `x`
        "labels": json.dumps([encode_label(label) for label in frozen.classes]),
        "samples": str(frozen.samples),
    }
    if frozen.columns is not None:
        about["columns"] = json.dumps(frozen.columns.as_json())
    helper.set_model_props(model, about)


def _compare(content: bytes, frozen: Learner, x: Tensor) -> None:
    """Raise a ValueError if the file answers differently from the learner."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    predictor = _Predictor(frozen)
    for part in (x, x[:1]):  # a batch of one, too
        expected = evaluate(frozen, lambda part=part: predictor(part.to(frozen.device))[1])  # type: ignore[misc]
        (found,) = session.run(["probabilities"], {INPUT: part.numpy()})
        if not np.allclose(found, expected.cpu().numpy(), atol=TOLERANCE):
            raise ValueError(
                f"{frozen.name} with the network {frozen.network_name} can't be exported: the ONNX model gives "
                "other probabilities than the learner; use save and load instead"
            )


def _check_installed() -> None:
    for module in ("onnx", "onnxscript", "onnxruntime"):
        try:
            __import__(module)
        except ImportError:
            raise ImportError(
                f"export needs the package {module}: run `pip install 'everlearn[onnx]'`"
            ) from None


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's remarks on packages that it does not need here."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
