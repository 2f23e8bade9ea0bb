"""Memory of a step: parameters, what the optimiser keeps of them, and one block of scores."""

from __future__ import annotations

import sys

import pytest
from command_line import python

pytestmark = pytest.mark.slow

LABELS, DIM, BATCH, BLOCK = 131_072, 480, 1_024, 8_192

# Tells by how much the peak grew over what the same code takes at a size that does not matter.
RUN = """
import sys
import numpy as np, torch
from gandalf.nets.heads import Table
from gandalf.train.head_update import TableUpdate
from gandalf.train.row_optimisers import RowOptions
from gandalf.train.labels import Every
from gandalf.train.losses import binary_cross_entropy

def train(labels, dim, batch, block):
    head = Table(labels, dim)
    update = TableUpdate(head, RowOptions(sys.argv[2]), binary_cross_entropy, getattr(torch, sys.argv[1]))
    place, label = np.arange(batch), np.sort(np.arange(batch) * 7919 % labels)
    every, weights = Every(labels, block), torch.rand(batch)
    for step in range(2):
        chunks = every.chunks(place, (place, label, np.ones(batch, np.float32)), step)
        update.step(torch.randn(batch, dim), tuple(chunks), weights, 1.0, with_loss=step == 1)

def peak():
    lines = open("/proc/self/status").read().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

train(300, 16, 16, 100)
before = peak()
train(*map(int, sys.argv[3:]))
print(peak() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read as on Linux")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("optimiser", "states"), [("adamw", 2), ("sgd", 1)])
def test_a_step_takes_little_more_than_parameters_state_and_a_block(dtype, optimiser, states):
    done = python(RUN, dtype, optimiser, LABELS, DIM, BATCH, BLOCK)
    assert done.returncode == 0, done.stderr
    parameters = 4 * LABELS * (DIM + 1)
    needed = parameters * (1 + states) + 4 * BATCH * BLOCK
    assert needed < int(done.stdout) < 1.3 * needed
