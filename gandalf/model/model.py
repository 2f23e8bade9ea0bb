"""Everything that turns a text into label scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from gandalf.data.new_labels import new_labels
from gandalf.errors import DataError
from gandalf.model.calibration import Calibration
from gandalf.nets.heads import Table
from gandalf.nets.int8_table import Int8Table
from gandalf.progress import track
from gandalf.text.tokens import Tokens

LONG = 32  # batches from which on somebody waits and wants to see a bar


@dataclass
class Model:
    """Tokens, encoder and head, what the labels are called, and how it was made."""

    tokens: Tokens
    encoder: nn.Module  # an `Encoder`: (B, T) -> (B, dim)
    head: Table | Int8Table  # the latter in memory alone, never in a folder
    label_texts: Sequence[str]  # L
    label_ids: Sequence[str] | None  # L
    config: dict[str, Any]  # the resolved recipe; `encoder` in it says how the encoder is built
    calibration: Calibration | None = None
    unheeded: ClassVar[frozenset[str]] = frozenset()  # settings of its recipe that say nothing about it

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
        """Number of labels L."""
        return self.head.num_labels

    @property
    def about(self) -> str:
        """What the model card says of its parts."""
        parts = f"an encoder turns the text into {self.head.dim} numbers"
        return f"{parts}, and each label has a weight vector of its own."

    @property
    def reads(self) -> str:
        """What the model card says of the length of texts."""
        return f"It reads at most {self.tokens.max_length} tokens of a text."

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.head.rows.device

    @torch.no_grad()
    def vectors(self, texts: Sequence[str], batch: int = 1024) -> Tensor:
        """Encode texts as they are encoded for prediction: no dropout, no gradient."""  # shape: (N, dim)
        starts = range(0, len(texts), batch)
        found = [torch.empty(0, self.head.dim, device=self.device)]
        was_training = self.encoder.training
        if was_training:  # asked first: it goes through all modules, and a server encodes one text at a time
            self.encoder.eval()
        try:
            for start in track(starts, "encoding") if len(starts) >= LONG else starts:
                ids = torch.from_numpy(self.tokens.encode(texts[start : start + batch]))
                found.append(self.encoder(ids.to(self.device)).float())
        finally:
            if was_training:
                self.encoder.train()
        return torch.cat(found)

    def add_labels(
        self,
        texts: Sequence[str],
        ids: Sequence[str] | None = None,
        examples: Sequence[Sequence[str]] | None = None,
        neighbours: Sequence[Sequence[str | int]] | None = None,
    ) -> Model:
        """A model that also has these labels, made from their texts without training; this one stays.

        `examples` are, for each label, texts that are known to have it, and `neighbours` known labels that
        are like it, by id, text or number; either may be empty for some labels.
        """
        from gandalf.model.new_labels import with_labels  # not above: it needs this class

        return with_labels(self, new_labels(texts, ids, examples, neighbours))
