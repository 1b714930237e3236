"""The bodies of requests as OpenAPI describes them."""

from __future__ import annotations

from typing import Any

from everlearn.service.wire import JSON, NPY, SAFETENSORS

__all__ = ["SUGGEST", "SUGGESTED", "answers", "body"]

SUGGESTED = 10  # samples, by default

LABEL = {"description": "a string, number, boolean, null, or a list of these", "example": "cat"}
LABELS = {"type": "array", "items": LABEL, "example": ["cat", "dog"]}
IDS = {"type": "array", "items": LABEL, "description": "one id per sample", "example": ["a-1", "a-2"]}
FIELDS: dict[str, dict[str, Any]] = {
    "x": {
        "type": "array",
        "items": {
            "anyOf": [{"type": "array", "items": {"type": "number"}}, {"type": "object"}, {"type": "string"}]
        },
        "description": "samples, as nested lists of numbers, as objects with a number or a category by column, or as "
        "texts for a model with an encoder",
        "example": [[0.1, 0.2], [0.3, 0.4]],
    },
    "columns": {
        "type": "array",
        "items": LABEL,
        "description": "the names of the columns of x, unless its samples are objects",
        "example": ["amount", "country"],
    },
    "categories": {
        "type": "array",
        "items": {"type": ["integer", "null"]},
        "description": "the number of categories of each column, 0 if that is not known, null for numbers",
    },
    "y": LABELS | {"description": "one label per sample"},
    "ids": IDS,
    "t": {"type": "integer", "description": "the task, for learners that need it"},
    "sample_weight": {
        "type": "array",
        "items": {"type": "number"},
        "description": "how much each sample counts in the loss; 1 by default, 0 leaves it out",
    },
    "label": LABEL,
    "rebuild": {"type": "boolean", "description": "train a fresh network from the memory that remains"},
    "min_position": {"type": "integer", "description": "wait for a snapshot with at least this position"},
    "probabilities": {
        "type": "boolean",
        "description": "a row of probabilities per sample, over the classes",
    },
    "confidences": {"type": "boolean", "description": "the probability of each answer"},
    "request_id": {"type": "string", "description": "a retry with the same id is applied once"},
}
NEEDED = {"x", "y", "label"}


def answers(example: dict[str, Any]) -> dict[str, Any]:
    """The description of an answer, by an example."""
    content = {JSON: {"schema": {"type": "object"}, "example": example}}
    return {"responses": {"200": {"description": "Done", "content": content}}}


def body(*names: str, answer: dict[str, Any]) -> dict[str, Any]:
    """The description of a body with these fields: JSON and, where it has samples, npy and safetensors.

    answer: an example of the answer.
    """
    needed = [name for name in names if name in NEEDED or (name == "ids" and names[0] == "ids")]
    schema = {
        "type": "object",
        "properties": {name: FIELDS[name] for name in names},
        "required": needed,
        "additionalProperties": False,
    }
    content: dict[str, Any] = {JSON: {"schema": schema}}
    if "x" in names:
        file = {"type": "string", "format": "binary"}
        content[NPY] = {"schema": file | {"description": "x; the other fields are in the query, as JSON"}}
        content[SAFETENSORS] = {
            "schema": file | {"description": "the tensor x; the other fields are in the metadata, as JSON"}
        }
    return {"requestBody": {"required": True, "content": content}, **answers(answer)}


SUGGEST = {
    "parameters": [
        {
            "name": "n",
            "in": "query",
            "schema": {"type": "integer", "minimum": 0, "default": SUGGESTED},
            "description": "how many ids at most",
        }
    ],
    **answers({"ids": ["a-3", "a-1"], "position": 7}),
}
