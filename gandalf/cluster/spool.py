"""Write the rows of a sparse matrix to temporary files, and map them as a matrix."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable

import numpy as np
from scipy.sparse import csr_array

from gandalf.graph.joint_sums import RowBlock


def spooled(parts: Iterable[RowBlock], columns: int) -> csr_array:
    """Return the rows as one matrix in unnamed temporary files, which vanish with the process.

    Only the rows in use take memory. The matrix must have at least one entry.
    """
    with tempfile.TemporaryFile() as of_columns, tempfile.TemporaryFile() as of_values:
        lengths = [np.zeros(1, dtype=np.int64)]
        for part in parts:
            of_columns.write(part.columns.astype(np.int32, copy=False).tobytes())
            of_values.write(part.values.astype(np.float32, copy=False).tobytes())
            lengths.append(part.lengths)
        for file in (of_columns, of_values):
            file.flush()
        # The same index types as on one machine: int32 below 2**31 entries.
        ends = np.cumsum(np.concatenate(lengths), dtype=np.int64)
        wide = np.int32 if ends[-1] < 2**31 else np.int64
        entries = int(ends[-1])
        # Copy on write ("c"), since a caller may change the matrix.
        indices = np.memmap(of_columns, dtype=np.int32, mode="c", shape=(entries,))
        values = np.memmap(of_values, dtype=np.float32, mode="c", shape=(entries,))
        return csr_array(
            (values, indices.astype(wide, copy=False), ends.astype(wide)), shape=(len(ends) - 1, columns)
        )
