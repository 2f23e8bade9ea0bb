"""Name the encoders and heads. To add one, write a file like `bag_of_words.py` and a line here.

The table names places, so that a recipe can be checked without PyTorch.
"""

from __future__ import annotations

from gandalf.settings import Kinds

ENCODERS = Kinds(
    "encoder",
    {
        "bag-of-words": "gandalf.nets.bag_of_words:KIND",
        "inception": "gandalf.nets.inception:KIND",
        "transformer": "gandalf.nets.transformer:KIND",
    },
)
HEADS = Kinds(
    "head",
    {
        "table": "gandalf.nets.head_kind:TABLE",
        "gated": "gandalf.nets.label_text:GATED",
        "attention": "gandalf.nets.label_text:ATTENTION",
    },
)
