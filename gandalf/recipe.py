"""Everything that can be set about a training run, with its defaults: what `gandalf config` prints."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from gandalf.augment.label_points import Points
from gandalf.augment.sampling import Order
from gandalf.graph.estimates import KINDS
from gandalf.graph.label_graph import SharedText
from gandalf.settings import setting
from gandalf.train.rates import OptimiserName
from gandalf.train.schedules import ScheduleName

TreesKind = Literal["none", "auto", "parabel", "one-vs-all"]
Terms = Literal["auto", "words", "pairs", "characters"]
Hardening = Literal["threshold", "any", "sample", "copies"]
TextKind = Literal["words", "subwords", "pretrained"]
EncoderKind = Literal["bag-of-words", "inception", "transformer"]
AttentionName = Literal["self", "cross"]
BlockName = Literal["astec", "decaf", "eclare"]
HeadKind = Literal["table", "gated", "attention"]
HeadStart = Literal["points", "text", "graph-text", "random"]
RowsKind = Literal["live", "frozen"]
SiameseKind = Literal["none", "contrastive", "triplet", "decoupled"]
LabelsKind = Literal["auto", "every", "shortlist"]
KernelName = Literal["auto", "torch", "triton"]
RowPrecision = Literal["float32", "bfloat16", "float16", "float8"]
Precision = Literal["auto", "float32", "bfloat16"]
Device = Literal["auto", "cpu", "cuda"]
MixName = Literal["none", "mixup", "label-mixup"]
Judged = Literal["new", "all", "label"]
MemoryKind = Literal["none", "fitted"]


@dataclass(frozen=True)
class Text:
    """How a text becomes token ids."""

    kind: TextKind = setting(
        "words",
        "words: own vocabulary, pieces for unseen words. subwords: learnt BPE. pretrained: encoder.model's.",
    )
    max_length: int = setting(
        0, "Tokens read of a text; 0: as many as 99.5 % of the texts have, 32 to 64 words or 128 pieces."
    )
    min_count: int = setting(2, "Rarer words are broken into pieces.")
    max_tokens: int = setting(500_000, "Most words, pieces besides; of subwords never more than 32,000.")
    vectors: str | None = setting(
        None,
        "Start from these: a GloVe, word2vec or fastText text file, an installed package, or distilled: read "
        "off the transformer that is installed.",
    )


@dataclass(frozen=True)
class Encoder:
    """How token ids become a vector, and how that is learnt."""

    kind: EncoderKind = setting(
        "bag-of-words",
        "bag-of-words (Astec's), inception (InceptionXML's) or transformer (NGAME's, Renee's).",
    )
    model: str | None = setting(
        None,
        "Of a transformer: a Hugging Face folder, or an installed package with one; MiniLM-L6 by default.",
    )
    residual: BlockName = setting(
        "astec", "Block behind a bag of words, and behind a head's label texts: astec's, decaf's or eclare's."
    )
    centred: bool = setting(
        True, "Vectors of a bag of words less their mean, and rows that start at the labels' frequencies."
    )
    dim: int = setting(300, "Numbers in a word's vector (a transformer has its own).")
    dropout: float = setting(0.5, "Share of numbers dropped while training.")
    last_dropout: float = setting(0.5, "The same before the head (inception only).")
    attention: AttentionName = setting(
        "cross",
        "What the second attention of inception asks. cross: the words, as InceptionXML's. self: what the "
        "first one made of them.",
    )
    optimiser: OptimiserName = setting("adamw", "adamw or sgd (with momentum); words always by Adam.")
    rate: float = setting(
        1e-3, "Highest learning rate of the layers; by sgd for a batch of 256, and it grows with the batch."
    )
    words_rate: float = setting(5e-3, "Highest learning rate of the word vectors.")
    weight_decay: float = setting(0.0, "Weight decay of the layers.")
    from_model: str | None = setting(None, "A trained model's folder: start from its vocabulary and encoder.")
    frozen: bool = setting(
        False, "Only rows are learnt; the encoder stays as it began, or as a siamese stage left it."
    )


@dataclass(frozen=True)
class Siamese:
    """A stage that comes first: the encoder learns to put texts near the texts of their labels."""

    kind: SiameseKind = setting(
        "none",
        "none: no such stage. contrastive: SiameseXML's. triplet: NGAME's, with clustered batches. "
        "decoupled: DEXML's softmax over all labels, whose texts are all read at every update.",
    )
    alone: bool = setting(False, "Stop after it: labels are ranked by their texts' vectors alone.")
    pair_epochs: float = setting(
        10.0, "Its length: times over the labels (contrastive) or the training points (triplet, decoupled)."
    )
    pair_batch: int = setting(512, "Labels (contrastive) or points (triplet, decoupled) in an update.")
    pair_rate: float = setting(
        1e-3, "Highest learning rate of the layers in this stage; by sgd for a pair_batch of 512."
    )
    pair_words_rate: float = setting(1e-2, "Highest learning rate of the word vectors in this stage.")
    pair_schedule: ScheduleName = setting("linear", "As training.schedule, in this stage.")
    pair_dropout: float | None = setting(None, "As encoder.dropout, in this stage; by default the same.")
    pair_warm_up: float = setting(0.05, "Share of its updates in which the rates rise.")
    power: float = setting(0.45, "Labels are drawn by this power of their frequency (contrastive).")
    margin: float = setting(0.3, "By how much nearer a text must be to its label than to others (triplet).")
    negatives: int = setting(10, "Hardest labels of the batch that a text is to be far from (triplet).")
    temperature: float = setting(0.1, "The smaller, the more the hardest of them count (triplet).")
    cluster_share: float = setting(
        0.32,
        "Most points of a cluster of near ones, as a share of the batch (triplet): NGAME's 512 of 1,600.",
    )
    softmax_temperature: float = setting(
        0.05, "Cosines are divided by this; the smaller, the more the hardest labels count (decoupled)."
    )
    label_points: bool = setting(
        False, "Label points take part, by their targets of labels other than their own (decoupled)."
    )
    guidance: float = setting(
        0.0,
        "Weight of a pull of each label text's vector towards the mean of its neighbours' in the label "
        "graph; 0: none.",
    )


@dataclass(frozen=True)
class Head:
    """What the labels' rows are made of, how they start and how they are learnt."""

    kind: HeadKind = setting(
        "table",
        "table: free rows. gated: and label texts (DECAF). attention: and their graph's texts (ECLARE).",
    )
    rows: RowsKind = setting(
        "live", "Label texts in rows. live: read and learnt at every step. frozen: read once an epoch."
    )
    start: HeadStart = setting(
        "points",
        "Where free rows begin: the label's points (their mean), its text, its graph's texts, or random.",
    )
    optimiser: OptimiserName = setting("adamw", "adamw or sgd (with momentum).")
    rate: float = setting(
        5e-3, "Highest learning rate of the rows; by sgd for a batch of 256, and it grows with the batch."
    )
    momentum: float = setting(0.9, "Momentum of SGD, first beta of AdamW.")
    weight_decay: float = setting(0.0, "Weight decay of the rows.")
    kernel: KernelName = setting(
        "auto",
        "Of free rows that meet every label. torch: plain. triton: fused. auto: fused where that pays.",
    )
    row_precision: RowPrecision = setting(
        "float32",
        "Of the rows. bfloat16 and float16 are half as large, float8 a quarter, rounded by chance, for fused "
        "kernels.",
    )


@dataclass(frozen=True)
class LabelTrees:
    """Label trees over TF-IDF words in place of encoder and head; what is set of those then says nothing."""

    kind: TreesKind = setting(
        "none",
        "none, or linear classifiers by the library omikuji. parabel: in trees of labels. one-vs-all: "
        "without trees. auto: one-vs-all where that takes seconds.",
    )
    number: int = setting(3, "Trees whose scores are averaged.")
    words: int = setting(100_000, "Words that count: those that are in most texts. As many pairs, n-grams.")
    terms: Terms = setting(
        "words",
        "What is counted. pairs: words and word pairs. characters: and n-grams of 3 to 5 characters. "
        "auto: characters where texts and labels are few, else pairs.",
    )
    cost: float = setting(
        1.0, "Of a point on the wrong side: the larger, the less the weights are held small."
    )
    harden: Hardening = setting(
        "any",
        "Soft targets as 0 or 1. any: all are 1. threshold: from 0.5 on. sample: drawn by their values. "
        "copies: every point three times, drawn anew.",
    )


@dataclass(frozen=True)
class Labels:
    """Which labels a batch meets."""

    kind: LabelsKind = setting(
        "auto", "every label, or a shortlist; auto: a shortlist on a CPU with many labels."
    )
    block: int | None = setting(None, "Labels scored at a time; by default what fits well.")
    random: int = setting(2048, "Random labels in a shortlist.")
    hard: int = setting(10, "Likeliest labels of each point in a shortlist.")
    refresh: int = setting(1, "Epochs between two look-ups of the likeliest labels.")


@dataclass(frozen=True)
class Training:
    """How long and at which rates."""

    epochs: float = setting(
        15.0, "An epoch is as many points as training points and labels together, whatever the targets."
    )
    steps: int | None = setting(None, "Number of updates, in place of epochs.")
    batch: int = setting(0, "Points in an update; 0: 256, or 1024 on a GPU where there are many points.")
    micro_batch: int = setting(
        0, "Texts that a transformer reads at once: less memory, each read twice. 0: the whole batch."
    )
    schedule: ScheduleName = setting("one-cycle", "one-cycle, cosine, linear or constant, all with warm-up.")
    warm_up: float = setting(0.1, "Share of the updates in which the rates rise.")
    clip: float = setting(1.0, "Largest norm of the layers' gradient; 0: no limit.")
    last_stretch: float = setting(
        0.0, "Then learn from held-out points too, for this share of the updates at a lower rate; 0: never."
    )
    precision: Precision = setting(
        "auto", "Of matrix products; auto: bfloat16 where the hardware has it, else float32."
    )


@dataclass(frozen=True)
class Targets:
    """Label points: their targets, how many there are, and what they count."""

    targets: str = setting(
        "shrunk",
        "Targets of label points; auto chooses on held-out points.",
        choices=lambda: ("none", *KINDS, "auto"),
    )
    delta: float = setting(0.1, "Keep targets strictly greater than this.")
    scale: float = setting(1.0, "Multiply targets off the diagonal.")
    strength: float | None = setting(None, "Of shrunk targets; fitted by default.")
    teacher: str | None = setting(None, "Of teacher targets: folder of a model trained on pairs.")
    top_k: int | None = setting(None, "Keep this many targets of a label point.")
    shared_text: SharedText = setting("own", "Labels with one text: own rows, or pooled into one.")
    label_weight: float = setting(1.0, "What a label point counts in the loss.")
    label_epochs: float = setting(0.7, "Share of the updates that meet label points, from the start.")
    own_weight: float = setting(
        0.0, "What a label point counts after that share, with its own label as its only target; 0: nothing."
    )
    keep: Points = setting("both", "both: G. labels: Z alone. half: Z, N/2 of it. uniform: U(G,N).")
    share: float = setting(1.0, "Label points of this share of the labels.")
    order: Order = setting("random", "Which share: at random, or tail first.")


@dataclass(frozen=True)
class Baselines:
    """What else has been done with labels and texts: the methods that label points are compared with."""

    mix: MixName = setting(
        "none", "After the encoder. mixup: two points. label-mixup: a point and the text of its label."
    )
    mix_alpha: float = setting(0.4, "Shares are drawn from Beta(alpha, alpha).")
    glas: float = setting(0.0, "Weight of the GLaS regulariser on the rows of a batch's labels.")
    synonyms: int = setting(0, "Versions of each training text with some words replaced by near ones.")
    synonym_share: float = setting(0.15, "Share of the words that are replaced.")


@dataclass(frozen=True)
class Validation:
    """The share of the training points that is held out, and what it decides."""

    share: float = setting(0.05, "Held out of training; 0: nothing, and then nothing is decided by it.")
    at_most: int = setting(2000, "Held-out points at most.")
    every: float = setting(1.0, "Epochs between two validations.")
    patience: int = setting(0, "Stop after so many validations without a better one; 0: never.")
    metric: str = setting("P@1", "The figure that decides which weights are kept.")
    texts: Judged = setting(
        "new", "Points that decide: those with new texts, all, or those whose text is a label's."
    )


@dataclass(frozen=True)
class Memory:
    """Training points that a model keeps beside its weights, and looks up."""

    kind: MemoryKind = setting("none", "fitted: keep them if held-out points gain by it. none: never.")
    neighbours: int = setting(50, "Nearest points and label texts that speak for a text.")


@dataclass(frozen=True)
class Search:
    """What `auto` may spend to find the best model for the data."""

    minutes: float | None = setting(None, "For everything together; by default by the size of the data.")
    parts: tuple[str, ...] = setting((), "Models to try, by name; by default what data and machine allow.")


@dataclass(frozen=True)
class Recipe:
    """A training run."""

    system: str = setting("astec", "Which parts the model is made of.")
    seed: int = setting(0, "Same seed, same model.")
    device: Device = setting("auto", "auto: a GPU if there is one.")
    text: Text = field(default_factory=Text)
    encoder: Encoder = field(default_factory=Encoder)
    head: Head = field(default_factory=Head)
    siamese: Siamese = field(default_factory=Siamese)
    trees: LabelTrees = field(default_factory=LabelTrees)
    labels: Labels = field(default_factory=Labels)
    training: Training = field(default_factory=Training)
    targets: Targets = field(default_factory=Targets)
    baselines: Baselines = field(default_factory=Baselines)
    validation: Validation = field(default_factory=Validation)
    memory: Memory = field(default_factory=Memory)
    search: Search = field(default_factory=Search)
