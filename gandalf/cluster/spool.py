"""A sparse matrix that is written down as its rows come, and read where it lies."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable

import numpy as np
from scipy.sparse import csr_array

from gandalf.graph.joint_sums import Rows


def spooled(parts: Iterable[Rows], columns: int) -> csr_array:
    """One matrix of the rows as they come, in files without a name that go with the process.

    Its memory is that of the rows that somebody looks at, not that of the whole. There must be an entry.
    """
    with tempfile.TemporaryFile() as of_columns, tempfile.TemporaryFile() as of_values:
        lengths = [np.zeros(1, dtype=np.int64)]
        for part in parts:
            of_columns.write(part.columns.astype(np.int32, copy=False).tobytes())
            of_values.write(part.values.astype(np.float32, copy=False).tobytes())
            lengths.append(part.lengths)
        for file in (of_columns, of_values):
            file.flush()
        # As one machine stacks them: both kinds of index of one type, int32 for all but enormous graphs.
        ends = np.cumsum(np.concatenate(lengths), dtype=np.int64)
        wide = np.int32 if ends[-1] < 2**31 else np.int64
        entries = int(ends[-1])
        # Copied where they are written to ("c"), since whoever holds a matrix may.
        indices = np.memmap(of_columns, dtype=np.int32, mode="c", shape=(entries,))
        values = np.memmap(of_values, dtype=np.float32, mode="c", shape=(entries,))
        return csr_array(
            (values, indices.astype(wide, copy=False), ends.astype(wide)), shape=(len(ends) - 1, columns)
        )
