"""Hold a network with its tokens and labels: everything that turns a text into label scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import torch
from scipy.sparse import csr_array
from torch import Tensor
from torch.nn import functional as F

from gandalf.data.new_labels import NewLabel
from gandalf.errors import DataError
from gandalf.model.calibration import Calibration
from gandalf.model.exact import pair_scores, top_k
from gandalf.model.facts import Facts
from gandalf.model.new_rows import NewRows
from gandalf.model.part import AddsLabels, Mask, largest
from gandalf.model.weights import check_options, write_weights
from gandalf.nets.encoder import TextEncoder
from gandalf.nets.heads import Table
from gandalf.nets.int8_table import Int8Table
from gandalf.progress import track
from gandalf.text.tokens import Tokens
from gandalf.wide.mixing import Floats, Ints

NUMBERS = 1 << 20  # numbers of label rows that are compared with one row at once
SHORTEST = 1e-12  # a shorter row has cosines near 0, as by `F.normalize`
LONG = 32  # batches from which on a progress bar is shown


@dataclass
class Model(AddsLabels):
    """A network: tokens, encoder, head, names of the labels, and the recipe."""

    tokens: Tokens
    encoder: TextEncoder  # (B, T) -> (B, dim)
    head: Table | Int8Table  # an Int8Table is made in memory and never written to a folder
    label_texts: Sequence[str]  # L
    label_ids: Sequence[str] | None  # L
    config: dict[str, Any]  # the resolved recipe; `encoder` in it says how the encoder is built
    calibration: Calibration | None = None
    maker: NewRows | None = field(default=None, repr=False)  # makes rows of new labels; None: not fitted yet
    unused_settings: ClassVar[frozenset[str]] = frozenset()  # recipe settings that do not apply to a network

    def __post_init__(self) -> None:
        for name, labels in (("label_texts", self.label_texts), ("label_ids", self.label_ids)):
            if labels is not None and len(labels) != self.num_labels:
                raise DataError(
                    f"{name} has {len(labels):,} entries, and the head {self.num_labels:,} labels"
                )

    def __repr__(self) -> str:
        name = self.config.get("system", "model")
        return f"<Model {name}, {self.num_labels:,} labels, {self.tokens.size:,} tokens, dim {self.head.dim}>"

    @property
    def num_labels(self) -> int:
        """Return the number of labels, L."""
        return self.head.num_labels

    @property
    def card_summary(self) -> str:
        """Return the sentence of the model card about encoder and head."""
        parts = f"an encoder turns the text into {self.head.dim} numbers"
        return f"{parts}, and each label has a weight vector of its own."

    @property
    def card_limits(self) -> str:
        """Return the sentence of the model card about the length of texts."""
        return f"It reads at most {self.tokens.max_length} tokens of a text."

    @property
    def device(self) -> torch.device:
        """Return the device of the weights."""
        return self.head.rows.device

    @torch.no_grad()
    def vectors(self, texts: Sequence[str], batch: int = 1024) -> Tensor:
        """Encode texts for prediction: without dropout and gradients."""  # shape: (N, dim)
        if len(texts) == 1:
            plain = self.encoder.plain()
            if plain is not None:
                return torch.from_numpy(plain(self.tokens.encode(texts)[0])).unsqueeze(0)
        starts = range(0, len(texts), batch)
        found = [torch.empty(0, self.head.dim, device=self.device)]
        was_training = self.encoder.training
        if was_training:  # `eval` visits all modules, which is slow for a server with one text at a time
            self.encoder.eval()
        try:
            for start in track(starts, "encoding") if len(starts) >= LONG else starts:
                ids = torch.from_numpy(self.tokens.encode(texts[start : start + batch]))
                found.append(self.encoder(ids.to(self.device)).float())
        finally:
            if was_training:
                self.encoder.train()
        return torch.cat(found)

    def best(self, texts: Sequence[str], k: int, exclude: csr_array | None = None) -> tuple[Ints, Floats]:
        """Return label numbers and scores of the k best labels of each text, by an exact search."""
        return top_k(self.vectors(texts), self.head, k, exclude=exclude)

    @torch.no_grad()
    def score(self, texts: Sequence[str], labels: Ints) -> Floats:
        """Return the score of each text with each of its own labels."""  # shape: (N, C) -> (N, C)
        ids = torch.from_numpy(labels).to(self.device)
        found: Floats = pair_scores(self.vectors(texts), self.head, ids).cpu().numpy()
        return found

    def knows(self, texts: Sequence[str]) -> Mask:
        """Return True for each text of which at least one token is known."""  # shape: (N,)
        return self.tokens.known(texts)

    def unit_vectors(self, texts: Sequence[str]) -> Tensor:
        """Return the encoder's vectors, scaled to length 1."""  # shape: (N, dim)
        return F.normalize(self.vectors(texts), dim=1)

    @torch.no_grad()
    def similar_labels(self, label: int, most: int) -> list[tuple[int, float]]:
        """Return the labels whose rows have the highest cosine with this label's row."""
        row = F.normalize(self.head.at(torch.tensor([label], device=self.device))[0].float(), dim=1)[0]
        step = max(1, NUMBERS // self.head.dim)
        ends = (*range(0, self.num_labels, step), self.num_labels)
        parts = [_cosines(self.head.block(start, stop)[0], row) for start, stop in pairwise(ends)]
        cosines = torch.cat(parts).cpu().numpy()
        cosines[label] = -torch.inf
        return largest(cosines, min(most, self.num_labels - 1))

    def facts(self) -> Facts:
        """Return the facts for `config.json`; raise a DataError if they do not describe the encoder."""
        options = dict(self.config.get("encoder") or {})
        check_options(options, self.encoder, self.tokens.size)
        return Facts(options, self.num_labels, self.head.dim, self.config, self.calibration)

    def write(self, folder: Path) -> None:
        """Write tokens and weights into an existing folder."""
        self.tokens.save(folder)
        write_weights(self.encoder, self.head, folder)

    def with_label_maker(self) -> Model:
        """Return the model with a fitted maker of new rows, and with memory reserved for new rows.

        Fitting takes seconds. Models with more labels then share the rows of this one.
        """
        from gandalf.model.new_labels import row_maker  # imported here because it imports this class

        return replace(self, maker=self.maker or row_maker(self), head=self.head.with_room())

    def with_labels(self, labels: Sequence[NewLabel]) -> Model:
        """Return a model that also has these labels, made without training; this model does not change."""
        from gandalf.model.new_labels import with_labels  # imported here because it imports this class

        return with_labels(self, labels, self.maker)


def _cosines(rows: Tensor, unit: Tensor) -> Tensor:
    """Return the cosine of each row with a vector of length 1, without a normalised copy of the rows.

    A server asks this in many threads, and each thread would keep the memory of its copy.
    """  # shape: (C, dim), (dim,) -> (C,)
    rows = rows.float()
    lengths: Tensor = torch.linalg.vector_norm(rows, dim=1)
    return rows @ unit / lengths.clamp_min(SHORTEST)
