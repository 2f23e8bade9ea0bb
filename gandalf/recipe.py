"""Define all settings of a training run with their defaults, as `gandalf config` prints them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from gandalf.augment.label_points import KeptPoints
from gandalf.augment.sampling import SamplingOrder
from gandalf.graph.estimates import KINDS
from gandalf.graph.label_graph import SharedText
from gandalf.nets.kinds import ENCODERS, HEADS
from gandalf.settings import setting
from gandalf.train.kernels import KernelName
from gandalf.train.pairs import PAIR_LOSSES
from gandalf.train.rates import OptimiserName
from gandalf.train.schedules import ScheduleName

TreesKind = Literal["none", "auto", "parabel", "one-vs-all"]
Terms = Literal["auto", "words", "pairs", "characters"]
Hardening = Literal["threshold", "any", "sample", "copies"]
TextKind = Literal["words", "subwords", "pretrained"]
AttentionName = Literal["self", "cross"]
BlockName = Literal["astec", "decaf", "eclare"]
HeadStart = Literal["points", "text", "graph-text", "random"]
RowsKind = Literal["live", "frozen"]
LabelsKind = Literal["auto", "every", "shortlist"]
RowPrecision = Literal["float32", "bfloat16", "float16", "float8"]
Precision = Literal["auto", "float32", "bfloat16"]
Device = Literal["auto", "cpu", "cuda"]
MixName = Literal["none", "mixup", "label-mixup"]
Judged = Literal["new", "all", "label"]
MemoryKind = Literal["none", "fitted"]


@dataclass(frozen=True)
class Text:
    """How texts become token ids."""

    kind: TextKind = setting(
        "words",
        "words: learnt vocabulary, pieces for unknown words. subwords: learnt BPE. pretrained: those of "
        "encoder.model.",
    )
    max_length: int = setting(
        0, "Tokens read of a text; 0: enough for 99.5 % of the texts, within 32 to 64 words or 128 pieces."
    )
    min_count: int = setting(2, "Break words with fewer occurrences into pieces.")
    max_tokens: int = setting(500_000, "Most words, without pieces; subwords are at most 32,000.")
    vectors: str | None = setting(
        None,
        "Start from these word vectors: a GloVe, word2vec or fastText text file, an installed package, or "
        "distilled, which reads them off the installed transformer.",
    )


@dataclass(frozen=True)
class Encoder:
    """How token ids become a vector, and how the encoder is trained."""

    kind: str = setting(
        "bag-of-words",
        "bag-of-words (Astec), inception (InceptionXML) or transformer (NGAME, Renee).",
        choices=lambda: tuple(ENCODERS),
    )
    model: str | None = setting(
        None,
        "The transformer: a Hugging Face folder, or an installed package with one; default MiniLM-L6.",
    )
    residual: BlockName = setting(
        "astec", "Block after a bag of words, and after the label texts of a head: astec, decaf or eclare."
    )
    centred: bool = setting(
        True, "Subtract the mean from vectors of a bag of words, and start rows at the label frequencies."
    )
    dim: int = setting(300, "Numbers in the vector of a word (a transformer has a fixed number).")
    dropout: float = setting(0.5, "Share of numbers dropped in training.")
    last_dropout: float = setting(0.5, "Share of numbers dropped before the head (inception only).")
    attention: AttentionName = setting(
        "cross",
        "Input of inception's second attention. cross: the words, as in InceptionXML. self: the output of "
        "the first attention.",
    )
    optimiser: OptimiserName = setting("adamw", "adamw or sgd (with momentum); word vectors always use Adam.")
    rate: float = setting(
        1e-3, "Highest learning rate of the layers; for sgd the rate at batch 256, it grows with the batch."
    )
    words_rate: float = setting(5e-3, "Highest learning rate of the word vectors.")
    weight_decay: float = setting(0.0, "Weight decay of the layers.")
    from_model: str | None = setting(None, "A trained model's folder: start from its vocabulary and encoder.")
    frozen: bool = setting(
        False, "Train rows only; the encoder stays as it was at the start, or after a siamese stage."
    )


@dataclass(frozen=True)
class Siamese:
    """The optional first stage: train the encoder to put texts near the texts of their labels."""

    kind: str = setting(
        "none",
        "none: no such stage. contrastive: as SiameseXML. triplet: as NGAME, with clustered batches. "
        "decoupled: as DEXML, a softmax over all labels, whose texts are all encoded at every update.",
        choices=lambda: ("none", *PAIR_LOSSES),
    )
    alone: bool = setting(False, "Stop after this stage, and rank labels by the vectors of their texts.")
    pair_epochs: float = setting(
        10.0, "Length: passes over the labels (contrastive) or training points (triplet, decoupled)."
    )
    pair_batch: int = setting(512, "Labels (contrastive) or points (triplet, decoupled) in an update.")
    pair_rate: float = setting(
        1e-3, "Highest learning rate of the layers in this stage; for sgd the rate at pair_batch 512."
    )
    pair_words_rate: float = setting(1e-2, "Highest learning rate of the word vectors in this stage.")
    pair_schedule: ScheduleName = setting("linear", "Schedule of the rates in this stage.")
    pair_dropout: float | None = setting(None, "Dropout in this stage; default encoder.dropout.")
    pair_warm_up: float = setting(0.05, "Share of this stage's updates in which the rates rise.")
    power: float = setting(0.45, "Draw labels by this power of their frequency (contrastive).")
    margin: float = setting(
        0.3, "How much nearer a text must be to its label than to other labels (triplet)."
    )
    negatives: int = setting(10, "Number of hardest labels of the batch to move away from a text (triplet).")
    temperature: float = setting(0.1, "A smaller value gives the hardest labels more weight (triplet).")
    cluster_share: float = setting(
        0.32,
        "Most points of a cluster of similar points, as a share of the batch (triplet); NGAME: 512 of 1,600.",
    )
    softmax_temperature: float = setting(
        0.05, "Divide cosines by this; a smaller value gives the hardest labels more weight (decoupled)."
    )
    label_points: bool = setting(
        False, "Train on label points too, with their targets without the own label (decoupled)."
    )
    guidance: float = setting(
        0.0,
        "Weight of a loss that pulls the vector of each label text towards the mean vector of its neighbours "
        "in the label graph; 0: none.",
    )


@dataclass(frozen=True)
class HeadSettings:
    """How the rows of labels are made, started and trained."""

    kind: str = setting(
        "table",
        "table: free rows. gated: plus label texts (DECAF). attention: plus graph neighbours' texts "
        "(ECLARE).",
        choices=lambda: tuple(HEADS),
    )
    rows: RowsKind = setting(
        "live", "Label texts in rows. live: encode and train at every step. frozen: encode once an epoch."
    )
    start: HeadStart = setting(
        "points",
        "Start of free rows: points (mean of the label's points), text (label text), graph-text (texts of "
        "graph neighbours), or random.",
    )
    optimiser: OptimiserName = setting("adamw", "adamw or sgd (with momentum).")
    rate: float = setting(
        5e-3, "Highest learning rate of the rows; for sgd the rate at batch 256, it grows with the batch."
    )
    momentum: float = setting(0.9, "Momentum of SGD, first beta of AdamW.")
    weight_decay: float = setting(0.0, "Weight decay of the rows.")
    kernel: KernelName = setting(
        "auto",
        "Kernel of free rows if a batch meets every label. torch: plain. triton: fused. auto: the faster.",
    )
    row_precision: RowPrecision = setting(
        "float32",
        "Precision of the rows. bfloat16 and float16 take half the memory, float8 a quarter, with stochastic "
        "rounding; they need fused kernels.",
    )


@dataclass(frozen=True)
class LabelTrees:
    """Label trees over TF-IDF words, used instead of encoder and head, whose settings are then ignored."""

    kind: TreesKind = setting(
        "none",
        "none, or linear classifiers by omikuji. parabel: in trees of labels. one-vs-all: without "
        "trees. auto: one-vs-all if that takes seconds only.",
    )
    number: int = setting(3, "Trees whose scores are averaged.")
    words: int = setting(100_000, "Most words, pairs, and n-grams each: those in most texts are kept.")
    terms: Terms = setting(
        "words",
        "Terms. pairs: words and word pairs. characters: plus n-grams of 3 to 5. auto: characters if "
        "texts and labels are few, else pairs.",
    )
    cost: float = setting(1.0, "Cost of a misclassified point; a larger value means less regularisation.")
    harden: Hardening = setting(
        "any",
        "How soft targets become 0 or 1. any: all become 1. threshold: from 0.5 on. sample: drawn with "
        "their value as probability. copies: every point three times, each drawn anew.",
    )


@dataclass(frozen=True)
class LabelSettings:
    """The labels that a batch is scored against."""

    kind: LabelsKind = setting(
        "auto", "every label, or a shortlist; auto: a shortlist on a CPU with many labels."
    )
    block: int | None = setting(None, "Labels scored at a time; by default chosen by the memory.")
    random: int = setting(2048, "Random labels in a shortlist.")
    hard: int = setting(10, "Likeliest labels of each point in a shortlist.")
    refresh: int = setting(1, "Epochs between two searches for the likeliest labels.")


@dataclass(frozen=True)
class Training:
    """Length, batch and schedule of the training."""

    epochs: float = setting(
        15.0, "Number of epochs; one has as many points as training points and labels, for any targets."
    )
    steps: int | None = setting(None, "Number of updates, instead of epochs.")
    batch: int = setting(0, "Points in an update; 0: 256, or 1024 on a GPU with many points.")
    micro_batch: int = setting(
        0, "Texts that a transformer reads at once: saves memory, reads each text twice. 0: whole batch."
    )
    schedule: ScheduleName = setting("one-cycle", "one-cycle, cosine, linear or constant, all with warm-up.")
    warm_up: float = setting(0.1, "Share of the updates in which the rates rise.")
    clip: float = setting(1.0, "Largest norm of the layers' gradient; 0: no limit.")
    last_stretch: float = setting(
        0.0, "Finally train on held-out points too, for this share of the updates at a lower rate; 0: never."
    )
    precision: Precision = setting(
        "auto", "Precision of matrix products; auto: bfloat16 if the hardware has it, else float32."
    )


@dataclass(frozen=True)
class Targets:
    """Label points: their targets, number and weight."""

    targets: str = setting(
        "shrunk",
        "Targets of label points; auto chooses on held-out points.",
        choices=lambda: ("none", *KINDS, "auto"),
    )
    delta: float = setting(0.1, "Keep targets strictly greater than this.")
    scale: float = setting(1.0, "Multiply the targets of a label point for other labels by this.")
    strength: float | None = setting(None, "Strength of shrunk targets; fitted by default.")
    teacher: str | None = setting(None, "For teacher targets: folder of a model trained on pairs.")
    top_k: int | None = setting(None, "Keep this many targets of a label point.")
    shared_text: SharedText = setting("own", "Labels with one text: own rows, or pooled into one.")
    label_weight: float = setting(1.0, "Weight of a label point in the loss.")
    label_epochs: float = setting(0.7, "Share of the updates, from the start, that use label points.")
    own_weight: float = setting(
        0.0, "Weight of a label point after that share, with its own label as its only target."
    )
    keep: KeptPoints = setting(
        "both",
        "Points to train on. both: training and label points (G). labels: label points alone (Z). half: N/2 "
        "points of Z. uniform: N points of G.",
    )
    share: float = setting(1.0, "Make label points of this share of the labels.")
    order: SamplingOrder = setting("random", "Labels that the share takes: random, or tail first.")


@dataclass(frozen=True)
class Baselines:
    """Published methods that label points are compared with."""

    mix: MixName = setting(
        "none", "Mix vectors after the encoder. mixup: two points. label-mixup: a point and its label text."
    )
    mix_alpha: float = setting(0.4, "Draw mixing weights from Beta(alpha, alpha).")
    glas: float = setting(0.0, "Weight of the GLaS regulariser on the rows of a batch's labels.")
    synonyms: int = setting(0, "Versions of each training text with some words replaced by synonyms.")
    synonym_share: float = setting(0.15, "Share of the words to replace.")


@dataclass(frozen=True)
class Validation:
    """Held-out training points, and their use."""

    share: float = setting(0.05, "Share of the training points to hold out; 0: none, and no choice by them.")
    at_most: int = setting(2000, "Most held-out points.")
    every: float = setting(1.0, "Epochs between two validations.")
    patience: int = setting(0, "Stop after this number of validations without a better one; 0: never.")
    metric: str = setting("P@1", "The figure that selects the weights to keep.")
    texts: Judged = setting(
        "new", "Points that select: new (with new texts), all, or label (whose text is a label text)."
    )


@dataclass(frozen=True)
class MemorySettings:
    """Training points that a model keeps and looks up."""

    kind: MemoryKind = setting("none", "fitted: keep a memory if it improves held-out points. none: never.")
    neighbours: int = setting(50, "Number of nearest points and label texts that vote.")


@dataclass(frozen=True)
class Search:
    """Limits of the search of `auto` for the best model."""

    minutes: float | None = setting(
        None, "Minutes of the whole search; by default chosen by the size of the data."
    )
    parts: tuple[str, ...] = setting((), "Names of the models to try; by default chosen by data and machine.")


@dataclass(frozen=True)
class Recipe:
    """All settings of a training run."""

    system: str = setting("astec", "The published system, or auto.")
    seed: int = setting(0, "Seed of all random choices: the same seed, the same model.")
    device: Device = setting("auto", "Where to compute; auto: on a GPU if there is one.")
    text: Text = field(default_factory=Text)
    encoder: Encoder = field(default_factory=Encoder)
    head: HeadSettings = field(default_factory=HeadSettings)
    siamese: Siamese = field(default_factory=Siamese)
    trees: LabelTrees = field(default_factory=LabelTrees)
    labels: LabelSettings = field(default_factory=LabelSettings)
    training: Training = field(default_factory=Training)
    targets: Targets = field(default_factory=Targets)
    baselines: Baselines = field(default_factory=Baselines)
    validation: Validation = field(default_factory=Validation)
    memory: MemorySettings = field(default_factory=MemorySettings)
    search: Search = field(default_factory=Search)

    @property
    def pair_dropout(self) -> float:
        """Dropout of the encoder in a siamese stage."""
        dropout = self.siamese.pair_dropout
        return self.encoder.dropout if dropout is None else dropout
