"""Let the nearest keys of a text vote for its labels: a weighted mean of their values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, vstack

from gandalf.errors import DataError
from gandalf.memory.keys import NO_KEY, DenseKeys, Floats, Ints, SparseKeys, Vectors, join_keys, keys_of
from gandalf.metrics.topk import find_pairs
from gandalf.wide.mixing import NO_LABEL, PROPOSED, Proposals, as_logits, best_of_mix

LEAST_TEMPERATURE = 1e-3  # lower values have no meaning, because cosines have five digits
POINT, LABEL, EXAMPLE = "point", "label", "example"  # kinds of sources of a key


@dataclass(frozen=True)
class Voting:
    """Settings of the vote, which is a softmax of the cosines of the nearest keys and of `doubt`.

    A key with cosine `doubt` has the same vote as the doubt. The vote of the doubt goes to the model, so that
    distant keys hardly change the answer of the model. With None there is no doubt.
    """

    temperature: float = 0.03
    neighbours: int = 50
    doubt: float | None = None

    def __post_init__(self) -> None:
        wrong = not (LEAST_TEMPERATURE <= self.temperature < math.inf)
        wrong = wrong or type(self.neighbours) is not int or self.neighbours < 1
        if wrong or not (self.doubt is None or math.isfinite(self.doubt)):
            raise DataError(f"a memory cannot vote like this: {self}")

    def shares(self, cosines: Floats) -> npt.NDArray[np.float64]:
        """Return the share of each key in the vote; the shares of a row sum to at most 1."""  # shape: (N, n)
        logits = cosines.astype(np.float64) / self.temperature
        doubt = -np.inf if self.doubt is None else self.doubt / self.temperature
        top = np.maximum(logits.max(axis=1, initial=-np.inf), doubt)[:, np.newaxis]
        top = np.where(np.isneginf(top), 0.0, top)
        weights = np.exp(logits - top)
        total = weights.sum(axis=1, keepdims=True) + np.exp(doubt - top)
        return np.asarray(weights / np.maximum(total, 1e-300), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Record:
    """The source of a key."""

    text: str
    kind: str = POINT
    id: str | None = None  # id of an example, for its removal


@dataclass(frozen=True)
class Vote:
    """A vote of a key for a label, or against it."""

    record: Record
    cosine: float
    share: float  # the key's share of the vote
    value: float  # the key's value for the label


@dataclass(frozen=True, eq=False)
class NearestKeys:
    """The keys nearest to each query, nearest first: number of the group, place in the group, and cosine."""

    groups: Ints  # shape: (N, n)
    places: Ints  # shape: (N, n); NO_KEY if there is no key
    cosines: Floats  # shape: (N, n)


@dataclass(frozen=True, eq=False)
class EntryGroup:
    """Entries of a memory that were added together: keys, values and records."""

    keys: DenseKeys | SparseKeys
    values: csr_array  # K x L
    records: tuple[Record, ...]  # K

    def __post_init__(self) -> None:
        if not len(self.keys) == self.values.shape[0] == len(self.records):
            what = f"{len(self.keys):,} keys, {self.values.shape[0]:,} values, {len(self.records):,} records"
            raise DataError(f"the parts of a memory differ in length: {what}")

    def __len__(self) -> int:
        return len(self.records)

    @cached_property
    def names_labels(self) -> npt.NDArray[np.bool_]:
        """Return True for each key with a positive value for a label."""  # shape: (K,)
        rows = np.repeat(np.arange(len(self)), np.diff(self.values.indptr))
        return np.bincount(rows[self.values.data > 0], minlength=len(self)) > 0

    @cached_property
    def example_places(self) -> dict[str, int]:
        """Return the place of each example by its id."""
        return {
            record.id: place
            for place, record in enumerate(self.records)
            if record.kind == EXAMPLE and record.id is not None
        }

    def joined(self, other: EntryGroup) -> EntryGroup:
        """Return these keys, followed by others."""
        values = csr_array(vstack([self.values, other.values], format="csr"))
        return EntryGroup(join_keys(self.keys, other.keys), values, self.records + other.records)

    def without(self, places: set[int]) -> EntryGroup:
        """Return the group without the keys at `places`."""
        dropped = np.array(sorted(places), dtype=np.int64)
        kept = np.delete(np.arange(len(self)), dropped)
        records = tuple(self.records[at] for at in kept.tolist())
        return EntryGroup(self.keys.without(dropped), csr_array(self.values[kept]), records)

    def widened(self, labels: int) -> EntryGroup:
        """Return the group for more labels, for which all values are 0."""
        values = self.values
        shape = (values.shape[0], labels)
        return replace(self, values=csr_array((values.data, values.indices, values.indptr), shape=shape))


@dataclass(frozen=True, eq=False)
class Examples(Mapping[str, tuple[int, int]]):
    """A mapping from the id of an example to the number of its group and its place in the group.

    Each group caches its own table, so that a new memory with the same groups need not list all examples
    again.
    """

    groups: tuple[EntryGroup, ...]

    def __getitem__(self, id: str) -> tuple[int, int]:
        for number, group in enumerate(self.groups):
            if id in group.example_places:
                return number, group.example_places[id]
        raise KeyError(id)

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(group.example_places for group in self.groups)

    def __len__(self) -> int:
        return sum(len(group.example_places) for group in self.groups)


@dataclass(frozen=True, eq=False)
class Memory:
    """Keys with values, and how they vote. A memory is never changed, only replaced."""

    groups: tuple[EntryGroup, ...]  # the original group, then groups of added keys
    voting: Voting = field(default_factory=Voting)

    def __post_init__(self) -> None:
        if len({type(group.keys) for group in self.groups}) != 1:
            raise DataError("dense and sparse keys cannot be in one memory")

    def __len__(self) -> int:
        return sum(map(len, self.groups))

    @property
    def num_labels(self) -> int:
        """Return the number of labels, L."""
        return int(self.groups[0].values.shape[1])

    @property
    def examples(self) -> Examples:
        """Return the group and place of each example by its id."""
        return Examples(self.groups)

    def nearest(self, queries: Vectors) -> NearestKeys:
        """Return the keys that vote, nearest first."""
        number = self.voting.neighbours
        found = [group.keys.nearest(queries, number) for group in self.groups]
        places = np.concatenate([each for each, _ in found], axis=1)  # shape: (N, C)
        cosines = np.concatenate([each for _, each in found], axis=1)  # shape: (N, C)
        groups = np.repeat(np.arange(len(found)), [each.shape[1] for each, _ in found])  # shape: (C,)
        order = np.argsort(-cosines, axis=1, kind="stable")[:, :number]
        places, cosines = (
            np.take_along_axis(places, order, axis=1),
            np.take_along_axis(cosines, order, axis=1),
        )
        return NearestKeys(groups[order], places, cosines)

    def label_share(self, near: NearestKeys) -> npt.NDArray[np.float64]:
        """Return the share of the keys with a positive value; doubt and other keys have the rest."""
        shares = self.voting.shares(near.cosines)  # shape: (N, n)
        for number, group in enumerate(self.groups):
            silent = (near.groups == number) & (near.places != NO_KEY)
            silent[silent] = ~group.names_labels[near.places[silent]]
            shares[silent] = 0.0
        return np.asarray(shares.sum(axis=1))

    def best_with(
        self, proposed: Proposals, near: NearestKeys, weight: float, k: int, exclude: csr_array | None = None
    ) -> tuple[Ints, Floats]:
        """Return ids and logits of the k best labels by a model's proposals and by votes of this weight."""
        ids, probabilities = proposed
        voted, votes = self.strongest_votes(near, max(ids.shape[1], PROPOSED), exclude)
        weighted = [(ids, self.trust(near, weight) * probabilities), (voted, weight * votes)]
        return best_of_mix(weighted, (1.0, 1.0), k)

    def score_with(
        self, probabilities: npt.NDArray[np.float64], near: NearestKeys, weight: float, labels: Ints
    ) -> Floats:
        """Return logits of labels by a model's probabilities and by votes of this weight."""
        # shape of probabilities, labels and result: (N, C)
        return as_logits(self.trust(near, weight) * probabilities + weight * self.votes_for(near, labels))

    def trust(self, near: NearestKeys, weight: float) -> npt.NDArray[np.float64]:
        """Return the weight of the model: what a memory of this weight leaves, and its doubt."""  # (N, 1)
        return np.asarray(1 - weight * self.label_share(near)[:, np.newaxis])

    def strongest_votes(self, near: NearestKeys, size: int, exclude: csr_array | None = None) -> Proposals:
        """Return ids and votes of the labels with a vote, the largest absolute votes first."""
        rows, labels, votes = self._single_votes(near)
        pairs, at = np.unique(rows * self.num_labels + labels, return_inverse=True)
        votes = np.bincount(at, votes, len(pairs)).astype(np.float64)
        rows, labels = np.divmod(pairs, self.num_labels)
        if exclude is not None:
            kept = find_pairs(csr_array(exclude).sorted_indices(), rows, labels) < 0
            rows, labels, votes = rows[kept], labels[kept], votes[kept]
        order = np.lexsort((labels, -np.abs(votes), rows))
        rows, labels, votes = rows[order], labels[order], votes[order]
        rank = np.arange(len(rows)) - np.searchsorted(rows, rows)  # among the labels of its query
        listed = rank < size
        ids = np.full((len(near.places), size), NO_LABEL, dtype=np.int64)
        values = np.zeros(ids.shape)
        ids[rows[listed], rank[listed]] = labels[listed]
        values[rows[listed], rank[listed]] = votes[listed]
        return ids, values

    def _single_votes(self, near: NearestKeys) -> tuple[Ints, Ints, npt.NDArray[np.float64]]:
        """Return query, label and vote for each value of each voting key; a label may occur several times."""
        shares = self.voting.shares(near.cosines)
        queries, labels, votes = [], [], []
        for number, group in enumerate(self.groups):
            rows, columns = np.nonzero((near.groups == number) & (near.places != NO_KEY))
            ends, places = group.values.indptr, near.places[rows, columns]
            lengths = ends[places + 1] - ends[places]
            before = np.cumsum(lengths) - lengths
            at = np.arange(lengths.sum()) + np.repeat(ends[places] - before, lengths)
            queries.append(np.repeat(rows, lengths))
            labels.append(group.values.indices[at].astype(np.int64))
            votes.append(np.repeat(shares[rows, columns], lengths) * group.values.data[at])
        return np.concatenate(queries), np.concatenate(labels), np.concatenate(votes)

    def votes(self, near: NearestKeys) -> csr_array:
        """Return the votes for every label."""  # shape: (N, L)
        queries, labels, votes = self._single_votes(near)
        return csr_array((votes, (queries, labels)), shape=(len(near.places), self.num_labels))

    def votes_for(self, near: NearestKeys, labels: Ints) -> npt.NDArray[np.float64]:
        """Return the votes of each query for the labels of its row of `labels`."""  # shape: (N, C) -> (N, C)
        votes = self.votes(near).sorted_indices()
        rows = np.repeat(np.arange(len(labels)), labels.shape[1])
        at = find_pairs(votes, rows, labels.ravel())  # -1 without a vote, which selects the appended 0
        found: npt.NDArray[np.float64] = np.append(votes.data, 0.0)[at].reshape(labels.shape)
        return found

    def votes_on(self, query: Vectors, label: int) -> list[Vote]:
        """Return the votes for or against a label, the largest votes first; `query` is one row."""
        near = self.nearest(query)
        shares = self.voting.shares(near.cosines)[0]
        found: list[Vote] = []
        for at, (number, place) in enumerate(zip(near.groups[0], near.places[0], strict=True)):
            value = 0.0 if place == NO_KEY else float(self.groups[number].values[place, label])
            if value:
                record, cosine = self.groups[number].records[place], float(near.cosines[0, at])
                found.append(Vote(record, cosine, float(shares[at]), value))
        return sorted(found, key=lambda vote: -abs(vote.share * vote.value))

    def appended(self, vectors: Vectors, values: csr_array, records: Sequence[Record]) -> Memory:
        """Return a memory with more keys; the first group is shared, not copied."""
        groups = [*self.groups, EntryGroup(keys_of(vectors), values, tuple(records))]
        # As in a log-structured tree: a key is copied at most log2(number of groups) times.
        while len(groups) > 2 and 2 * len(groups[-1]) > len(groups[-2]):
            last = groups.pop()
            groups[-1] = groups[-1].joined(last)
        groups[-1].keys.prepare()
        return replace(self, groups=tuple(groups))

    def without(self, ids: Sequence[str]) -> Memory:
        """Return a memory from which these examples are removed completely."""
        dropped: dict[int, set[int]] = {}
        for id in ids:
            if id not in self.examples:
                raise DataError(f"there is no example {id!r}", remedy="give the id of an added example")
            number, place = self.examples[id]
            dropped.setdefault(number, set()).add(place)
        groups = list(self.groups)
        for number, places in dropped.items():
            groups[number] = groups[number].without(places)
            groups[number].keys.prepare()
        return replace(self, groups=(groups[0], *(group for group in groups[1:] if len(group))))

    def widened(self, labels: int) -> Memory:
        """Return a memory for more labels."""
        return replace(self, groups=tuple(group.widened(labels) for group in self.groups))
