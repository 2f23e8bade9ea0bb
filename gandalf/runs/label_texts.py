"""The labels' texts as heads read them: token ids, bags of words, and bags averaged over a graph."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from gandalf.data.dataset import Dataset
from gandalf.graph.estimates.walk import smoothing_graph
from gandalf.recipe import Recipe
from gandalf.text.table import token_table
from gandalf.text.tokens import Tokens
from gandalf.train.batches import LabelWords

PARTS = {"table": (), "gated": ("own",), "attention": ("own", "averaged")}  # of a head, besides free rows


@dataclass(frozen=True, eq=False)
class LabelTexts:
    """Texts of all labels."""

    tokens: npt.NDArray[np.int32]  # L x T
    bags: dict[str, csr_array]  # L x V: a label's own words, and those of its neighbours as well
    graph: csr_array | None  # L x L, what they are averaged over

    @staticmethod
    def of(rest: Dataset, tokens: Tokens, recipe: Recipe) -> LabelTexts | None:
        """What the recipe's stages need of these training points; None where they need nothing."""
        parts = PARTS[recipe.head.kind]
        starts_by_graph = recipe.head.start == "graph-text"
        if not parts and recipe.siamese.kind == "none" and recipe.head.start not in ("text", "graph-text"):
            return None
        _, texts = rest.need_texts("reading label texts")
        table = token_table(tokens, texts)
        wants_graph = starts_by_graph or "averaged" in parts
        graph = smoothing_graph(rest.targets, seed=recipe.seed) if wants_graph else None
        bags = {"own": word_bags(table, tokens.idf())} if parts else {}
        if graph is not None and "averaged" in parts:
            bags["averaged"] = csr_array(graph @ bags["own"])
        return LabelTexts(table, bags, graph)

    def words(self) -> LabelWords:
        """The words that rows of labels are made of."""
        first, *rest = self.bags.values()
        return LabelWords(csr_array(sum(rest, start=first)))


def word_bags(table: npt.NDArray[np.int32], idf: npt.NDArray[np.float32]) -> csr_array:
    """Each text's words weighted as a bag-of-words encoder weighs them: by idf, length 1."""  # shape: (L, V)
    weight = np.where(table != 0, idf[table], 0).astype(np.float64)
    weight /= np.maximum(np.linalg.norm(weight, axis=1, keepdims=True), 1e-12)
    row, place = np.nonzero(weight)
    entries = (weight[row, place].astype(np.float32), (row, table[row, place]))
    return csr_array(entries, shape=(len(table), len(idf)))
