"""Name the losses of pairs. To add one, write a file like `contrastive.py` and a line here."""

from __future__ import annotations

from gandalf.settings import Kinds

PAIR_LOSSES = Kinds(
    "loss of pairs",
    {
        "contrastive": "gandalf.train.pairs.contrastive:KIND",
        "triplet": "gandalf.train.pairs.triplet:KIND",
        "decoupled": "gandalf.train.pairs.decoupled:KIND",
    },
)
