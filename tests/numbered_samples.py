"""Samples that are numbered, so that each can be identified in a memory."""

import numpy as np
import torch


def send(memory, labels, start=0):
    """Let a memory keep what it wants of a batch with these labels, numbered from `start`; returns the batch."""
    table = memory._labels
    if table.new(labels):
        for label in labels:
            table.add(label)
        memory.open_classes(len(table))
    x = torch.arange(start, start + len(labels))[:, None]
    memory.write(x, torch.from_numpy(memory.admit(np.array(table.slots(labels)))))
    return x
