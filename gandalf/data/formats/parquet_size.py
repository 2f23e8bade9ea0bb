"""How much memory rows of a Parquet file will take, before they take it."""

from __future__ import annotations

from typing import Any

ROW_BYTES = 64  # of a row in Python, beside what stands in its cells


def as_dictionaries(schema: Any) -> list[str]:  # noqa: ANN401  of an optional extra
    """Return the columns of texts: read as dictionaries, a text that is written once takes memory once."""
    columns = (schema.column(at) for at in range(len(schema.names)))
    return [column.path for column in columns if column.physical_type == "BYTE_ARRAY"]


def expanded_bytes(batch: Any) -> int:  # noqa: ANN401  of an optional extra
    """Return the bytes of a batch in which each cell has a text of its own."""
    return int(batch.num_rows) * ROW_BYTES + sum(map(_expanded, batch.columns))


def _expanded(column: Any) -> int:  # noqa: ANN401  of an optional extra
    import pyarrow
    from pyarrow import compute, types

    if types.is_list(column.type) or types.is_large_list(column.type):
        return _expanded(column.flatten())
    if not isinstance(column, pyarrow.DictionaryArray):
        return int(column.nbytes)
    lengths = compute.cast(compute.binary_length(column.dictionary), pyarrow.int64())
    return int(compute.sum(lengths.take(column.indices.drop_null())).as_py() or 0)
