"""Build encoder and head of a run, as they are before the first step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array
from torch import Tensor, nn

from gandalf.errors import DataError
from gandalf.nets.distilled import distilled_vectors, is_distilled
from gandalf.nets.encoder import TextEncoder, evenly
from gandalf.nets.encoders import build_encoder, encode_tokens, encoder_kind
from gandalf.nets.head_kind import SPREAD, head_kind
from gandalf.nets.heads import Composed, Head, Table
from gandalf.nets.label_text import Frozen, LabelText
from gandalf.recipe import Encoder, Recipe
from gandalf.runs.prepare import LabelTexts, starting_model
from gandalf.text.tokens import Tokens
from gandalf.text.vectors import static_vectors
from gandalf.train.batches import Points
from gandalf.train.parallel.ranks import ONE, Ranks
from gandalf.train.precision import DTYPES

TEXTS_AT_ONCE = 1 << 16  # read by a rank that holds rows of some labels alone
SAMPLE = 4_096  # texts that estimate the mean vector of a bag of words, within 2 % of its length


def encoder_options(encoder: Encoder, max_length: int) -> dict[str, Any]:
    """Return the options that a model folder keeps, to build the encoder again."""
    if encoder.from_model is not None:
        return _options_of_model(encoder, encoder.from_model)
    chosen = encoder_kind(encoder.kind).choose(encoder, max_length)
    return {"kind": encoder.kind} | {each.name: getattr(chosen, each.name) for each in fields(chosen)}


def _options_of_model(encoder: Encoder, folder: str) -> dict[str, Any]:
    options: dict[str, Any] = starting_model(folder).config["encoder"]
    if options["kind"] != encoder.kind:
        what = f"holds an encoder of the kind {options['kind']}, and {encoder.kind} is asked for"
        raise DataError(what, remedy=f"set encoder.kind={options['kind']}", file=Path(folder))
    return {**options, "dropout": encoder.dropout}


def some_texts(points: Points, is_label: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Return token ids of a sample of the training points; label points do not change it."""
    rows = np.flatnonzero(~is_label)
    rows = rows if len(rows) else np.arange(len(points))
    return points.tokens[rows[evenly(len(rows), SAMPLE)]].astype(np.int64)


def assemble_encoder(recipe: Recipe, tokens: Tokens, texts: npt.NDArray[np.int64]) -> TextEncoder:
    """Return the encoder before the first step, on the recipe's device; `texts` are a sample of points."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        encoder = build_encoder(encoder_options(recipe.encoder, recipe.text.max_length), tokens.size)
        _start_encoder(encoder, recipe, tokens)
    encoder.to(recipe.device)
    if recipe.encoder.from_model is None:
        encoder.fit_to_texts(torch.from_numpy(texts).to(recipe.device))
    return encoder


def assemble_head(
    recipe: Recipe,
    encoder: TextEncoder,
    points: Points,
    texts: LabelTexts | None,
    own: slice | None = None,
    ranks: Ranks = ONE,
) -> Head:
    """Return the head before the first step: free rows, and what the recipe mixes with them.

    With `own`, the head has only the rows of these labels, the same rows as in the whole head.
    """
    num_labels = points.targets.shape[1]
    own, kind = own or slice(0, num_labels), head_kind(recipe.head.kind)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed + 1)
        table = Table.part(num_labels, encoder.dim, own)
        START[recipe.head.start](encoder, table, points, texts, own)
        if encoder.is_centred:
            vectors = encode_tokens(encoder, points.tokens[evenly(len(points), SAMPLE)]).cpu()
            start_scores(table, points, vectors, own, kind.spread, ranks)
        table.rows.data = table.rows.data.to(DTYPES[recipe.head.row_precision])
        table = table.to(recipe.device)  # only now: the device may have no room for float32
        if kind.mix is None or texts is None or encoder.word_table is None:
            return table
        block = recipe.encoder.residual
        live = [
            LabelText(encoder.word_table, texts.bags[name][own], encoder.dim, block) for name in kind.texts
        ]
        live = [part.to(recipe.device) for part in live]
        mix = kind.mix(encoder.dim, 1 + len(live))
        parts = [Frozen(part) for part in live] if recipe.head.rows == "frozen" else live
        return Composed(table, parts, mix).to(recipe.device)


def _start_encoder(encoder: TextEncoder, recipe: Recipe, tokens: Tokens) -> None:
    """Give an encoder the weights that the recipe starts it from: those of a model, or word vectors."""
    if recipe.encoder.from_model is not None:
        encoder.load_state_dict(starting_model(recipe.encoder.from_model).encoder.state_dict())
        return
    encoder.start(recipe.encoder, tokens)
    if recipe.text.vectors is not None and encoder.word_table is not None:
        source, dim = recipe.text.vectors, encoder.word_table.embedding_dim
        if is_distilled(source):
            vectors, found = distilled_vectors(source, tokens, dim, recipe.device)
        else:
            vectors, found = static_vectors(source, tokens, dim)
        encoder.word_table.start_from(torch.from_numpy(vectors), torch.from_numpy(found))


@torch.no_grad()
def start_from_points(
    encoder: nn.Module, head: Table, points: Points, texts: LabelTexts | None, own: slice | None = None
) -> None:
    """Start each row in the direction of the mean vector of its label's points."""
    of_labels = points.targets[:, own or slice(None)].T.tocsr()  # shape: (own labels, N)
    all_labels = head.num_labels == points.targets.shape[1]
    _start_rows(head, _sum_vectors(encoder, points.tokens, of_labels, at_once=all_labels))


@torch.no_grad()
def start_from_text(
    encoder: nn.Module, head: Table, points: Points, texts: LabelTexts | None, own: slice | None = None
) -> None:
    """Start each row in the direction of the vector of its label's text."""
    assert texts is not None
    _start_rows(head, encode_tokens(encoder, texts.tokens[own or slice(None)]).cpu().numpy())


@torch.no_grad()
def start_from_graph(
    encoder: nn.Module, head: Table, points: Points, texts: LabelTexts | None, own: slice | None = None
) -> None:
    """Start each row in the direction of the mean vector of the texts of its label and its neighbours."""
    assert texts is not None and texts.graph is not None
    graph = texts.graph[own or slice(None)].astype(np.float32)  # shape: (own labels, L)
    all_labels = head.num_labels == len(texts.tokens)
    _start_rows(head, _sum_vectors(encoder, texts.tokens, graph, at_once=all_labels))


def start_at_random(
    encoder: nn.Module, head: Table, points: Points, texts: LabelTexts | None, own: slice | None = None
) -> None:
    """Leave the rows as they are, drawn at random."""


Start = Callable[[nn.Module, Table, Points, "LabelTexts | None", "slice | None"], None]
START: dict[str, Start] = {
    "points": start_from_points,
    "text": start_from_text,
    "graph-text": start_from_graph,
    "random": start_at_random,
}


def _sum_vectors(
    encoder: nn.Module, tokens: npt.NDArray[np.int32], weights: csr_array, *, at_once: bool
) -> npt.NDArray[np.float32]:
    """Return weighted sums of the vectors of texts; read all texts at once, or part by part."""
    size = len(tokens) if at_once else TEXTS_AT_ONCE
    found: npt.NDArray[np.float32] | None = None
    for start in range(0, len(tokens), size):
        vectors = encode_tokens(encoder, tokens[start : start + size]).cpu().numpy()  # shape: (size, dim)
        part = (weights if at_once else weights[:, start : start + size]) @ vectors  # shape: (own, dim)
        found = part if found is None else np.add(found, part, out=found)
    assert found is not None, "no texts"
    return found


def _start_rows(head: Table, rows: npt.NDArray[np.float32]) -> None:
    """Set rows of length 1 in these directions; rows without a direction stay as drawn."""
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    rows /= np.maximum(length, 1e-6)
    unknown = ~(length[:, 0] > 1e-6)
    rows[unknown] = head.rows[torch.from_numpy(unknown).to(head.rows.device)].cpu().numpy()
    head.rows.copy_(torch.from_numpy(rows))


ROWS_AT_ONCE = 1 << 16


@torch.no_grad()
def start_scores(
    table: Table,
    points: Points,
    vectors: Tensor,
    own: slice,
    spread: float = SPREAD,
    ranks: Ranks = ONE,
) -> None:
    """Scale all rows by one number, and set each bias so that the label's mean probability is its frequency.

    `vectors` (S x dim) are of a sample of the texts, and `own` are the labels of this table. The number is
    the same on all ranks. If scores have the mean m and the standard deviation s, the mean of exp(score) is
    exp(m + s^2 / 2), so the bias subtracts both terms.
    """
    mean = vectors.mean(dim=0)
    centred = vectors - mean
    covariance = centred.T @ centred / max(len(vectors), 1)  # shape: (dim, dim)
    parts = torch.split(table.rows.data, ROWS_AT_ONCE)
    variance = torch.cat([((rows @ covariance) * rows).sum(dim=1) for rows in parts])  # shape: (own labels,)
    total = sum(ranks.values_of_all(float(variance.sum(dtype=torch.float64))))
    mean_variance = total / points.targets.shape[1]
    scale = spread / max(mean_variance**0.5, 1e-6)
    table.rows.data.mul_(scale)
    sums = np.asarray(points.targets.sum(axis=0), dtype=np.float32).ravel()[own]
    frequency = (torch.from_numpy(sums) + 0.5) / (len(points) + 1)  # 0.5: no label has the frequency 0
    shift = table.rows.data @ mean + 0.5 * scale**2 * variance
    table.bias.data.copy_(torch.logit(frequency) - shift)
