"""Write the vectors of texts, for search and clustering elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, issparse, save_npz, vstack

from gandalf.data.files import written
from gandalf.errors import DataError
from gandalf.model import Part
from gandalf.predict.inputs import InputChunk
from gandalf.progress import track
from gandalf.text.tokens import check_texts

CHUNK = 8_192  # texts whose vectors are held on the device at once

Dense = npt.NDArray[np.float32]
Embedded = Dense | csr_array


def embed(model: Part, texts: str | Sequence[str]) -> Embedded:
    """Return one vector of length 1 for each text; the product of two vectors is the texts' similarity.

    A network gives dense vectors, a linear model of words gives sparse TF-IDF rows. A mix gives the vectors
    of its heaviest network. One text gives a matrix with one row.
    """  # shape: (N, dim)
    asked = [texts] if isinstance(texts, str) else texts
    check_texts(asked)
    starts = range(0, max(len(asked), 1), CHUNK)
    parts: list[Any] = [
        _plain(model.unit_vectors(asked[at : at + CHUNK]))
        for at in (track(starts, "embedding") if len(starts) > 1 else starts)
    ]
    if issparse(parts[0]):
        return csr_array(vstack(parts, format="csr"))
    return np.asarray(np.concatenate(parts))


def dense_vectors(model: Part, texts: Sequence[str]) -> Dense:
    """Return the dense vectors of texts; raise a DataError if the model has sparse vectors."""
    found = embed(model, texts)
    if isinstance(found, csr_array):
        what = "a model of words has sparse vectors, one number for each word"
        raise DataError(what, remedy="write them into a .npz file with gandalf embed")
    return found


def write_vectors(path: Path, model: Part, chunks: Iterable[InputChunk]) -> int:
    """Write the vectors of all texts as `.npy`, `.npz` (sparse) or `.jsonl`; return the number of texts."""
    return _writer(path)(path, model, chunks)


def check_vectors_file(path: Path) -> None:
    """Refuse a file name whose ending no writer knows, before any work is done."""
    _writer(path)


def _writer(path: Path) -> Callable[[Path, Part, Iterable[InputChunk]], int]:
    if path.suffix not in _WRITERS:
        remedy = f"name a file that ends in {', '.join(_WRITERS)}"
        raise DataError("is in no format that vectors can be written in", remedy=remedy, file=path)
    return _WRITERS[path.suffix]


def _write_npy(path: Path, model: Part, chunks: Iterable[InputChunk]) -> int:
    """Write one dense array, a row for each text."""
    found = np.concatenate([dense_vectors(model, []), *(dense_vectors(model, each.texts) for each in chunks)])
    with written(path, "wb") as file:
        np.save(file, found)
    return len(found)


def _write_npz(path: Path, model: Part, chunks: Iterable[InputChunk]) -> int:
    """Write one sparse matrix, a row for each text."""
    vectors: list[Any] = [embed(model, []), *(embed(model, each.texts) for each in chunks)]
    found: Any = csr_array(vstack([csr_array(each) for each in vectors], format="csr"))
    with written(path, "wb") as file:
        save_npz(file, found)
    return int(found.shape[0])


def _write_json_lines(path: Path, model: Part, chunks: Iterable[InputChunk]) -> int:
    """Write one object for each text."""
    row = 0
    with written(path) as file:
        for each in chunks:
            vectors = dense_vectors(model, each.texts).tolist()
            for place, (text, vector) in enumerate(zip(each.texts, vectors, strict=True)):
                known = {} if each.ids is None else {"uid": each.ids[place]}
                record = {"row": row, **known, "text": text, "vector": vector}
                file.write(json.dumps(record, ensure_ascii=False) + "\n")
                row += 1
    return row


_WRITERS = {".npy": _write_npy, ".npz": _write_npz, ".jsonl": _write_json_lines}


def _plain(vectors: Any) -> Embedded:  # noqa: ANN401  a tensor, or rows of SciPy
    sparse: bool = issparse(vectors)
    found: Embedded = csr_array(vectors) if sparse else vectors.detach().cpu().float().numpy()
    return found
