"""Keep an index in its model folder: the links alone, since the folder holds the rows already."""

from __future__ import annotations

import json
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from gandalf.data.claim import only_writer
from gandalf.data.files import written
from gandalf.errors import DataError
from gandalf.model import Model
from gandalf.model.save import list_files
from gandalf.model_folder import INDEX, INDEX_FACTS, read_json
from gandalf.predict.hnsw import LINKS, Hnsw, build_hnsw, empty_graph
from gandalf.predict.index import RowsKind, row_blocks
from gandalf.wide.mixing import Floats

FORMAT = "gandalf hnsw index"
WIDEST = 1 << 20  # largest search width that is accepted; faiss counts in 32 bits


def stored_or_built(model: Model, folder: Path, rows: RowsKind) -> tuple[Hnsw, bool]:
    """Return the folder's index and False, or a new index and True; a new index is stored if possible."""
    blocks = row_blocks(model.head)
    checksum = _checksum(blocks)
    found = _read(folder, blocks, rows, checksum)
    if found is not None:
        return found, False
    made = build_hnsw(model, rows)
    # The server works without storing it, for example in a read-only folder.
    with suppress(DataError, OSError), only_writer(folder):
        _write(made, folder, rows, checksum)
    return made, True


def _checksum(blocks: list[Floats]) -> int:
    """Return a checksum of all rows."""
    found = 0
    for block in blocks:
        found = zlib.crc32(block.tobytes(), found)
    return found


def _write(index: Hnsw, folder: Path, rows: RowsKind, checksum: int) -> None:
    import faiss

    hnsw = index.graph.hnsw
    arrays = {
        name: faiss.vector_to_array(getattr(hnsw, name)).astype(kind)
        for name, kind in (("levels", np.int32), ("offsets", np.int64), ("neighbors", np.int32))
    }
    with written(folder / INDEX, "wb") as file:
        file.write(save(arrays))
    facts = {
        "format": FORMAT,
        "rows": rows,
        "labels": index.labels,
        "links": LINKS,
        "mark": checksum,
        "entry": int(hnsw.entry_point),
        "height": int(hnsw.max_level),
        "search_width": index.width,
        "recall@10": index.recall,
        "recall_queries": index.queries,
    }
    with written(folder / INDEX_FACTS) as file:
        file.write(json.dumps(facts, indent=2) + "\n")
    list_files(folder, INDEX, INDEX_FACTS)


def _read(folder: Path, blocks: list[Floats], rows: RowsKind, checksum: int) -> Hnsw | None:
    """Return the stored index if it was made of exactly these rows, else None."""
    if not (folder / INDEX).is_file() or not (folder / INDEX_FACTS).is_file():
        return None
    facts = read_json(folder / INDEX_FACTS)
    labels = sum(map(len, blocks))
    made_of = [facts.get(name) for name in ("format", "rows", "labels", "links", "mark")]
    if made_of != [FORMAT, rows, labels, LINKS, checksum]:
        return None
    try:
        arrays = load_file(folder / INDEX)
        graph = _restored(blocks, rows, facts, arrays)
        recall, width, queries = facts["recall@10"], facts["search_width"], facts["recall_queries"]
        if not 1 <= int(width) <= WIDEST:
            raise ValueError("the search width is out of range")
        return Hnsw(graph, labels, int(width), float(recall), int(queries), rows)
    except (SafetensorError, OSError, KeyError, ValueError, TypeError, OverflowError):
        return None  # a damaged index is built again


def _restored(blocks: list[Floats], rows: RowsKind, facts: dict[str, Any], arrays: dict[str, Any]) -> Any:  # noqa: ANN401  faiss has no types
    """Rebuild the graph from stored links."""
    import faiss

    graph = empty_graph(blocks[0].shape[1] - 1, rows)
    labels, entry, height = sum(map(len, blocks)), facts["entry"], facts["height"]
    per_level = faiss.vector_to_array(graph.hnsw.cum_nneighbor_per_level)
    _check_links(arrays, per_level, labels, entry, height)
    if not graph.is_trained:
        graph.train(np.concatenate(blocks[:8]))
    for block in blocks:
        graph.storage.add(block)
    graph.ntotal = labels
    for name, kind in (("levels", np.int32), ("offsets", np.uint64), ("neighbors", np.int32)):
        faiss.copy_array_to_vector(arrays[name].astype(kind, copy=False), getattr(graph.hnsw, name))
    graph.hnsw.entry_point, graph.hnsw.max_level = entry, height
    return graph


def _check_links(arrays: dict[str, Any], per_level: Any, labels: int, entry: int, height: int) -> None:  # noqa: ANN401
    """Raise a ValueError unless the links are those of a graph, since faiss does not check them."""
    levels, offsets, neighbours = arrays["levels"], arrays["offsets"], arrays["neighbors"]
    is_valid = (
        levels.shape == (labels,)
        and levels.min() >= 1
        and levels.max() < len(per_level)
        and offsets.shape == (labels + 1,)
        and offsets[0] == 0
        and np.array_equal(np.diff(offsets), per_level[levels])
        and neighbours.shape == (offsets[-1],)
        and neighbours.min() >= -1
        and neighbours.max() < labels
        and type(entry) is type(height) is int  # JSON may hold 0.5, or true
        and 0 <= entry < labels
        and levels[entry] == height + 1 == levels.max()
    )
    if is_valid:
        # Each link of a level must lead to a label that is on that level too.
        position = np.arange(len(neighbours)) - np.repeat(offsets[:-1], np.diff(offsets))
        level = np.searchsorted(per_level, position, side="right") - 1
        linked = neighbours >= 0
        is_valid = bool((levels[neighbours[linked]] > level[linked]).all())
    if not is_valid:
        raise ValueError("the links are not those of a graph")
