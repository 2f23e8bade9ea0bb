"""Define the encoder of Astec, DECAF and ECLARE: a weighted sum of word vectors, then a small block."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gandalf.nets.blocks import POINT_BLOCKS, BlockName
from gandalf.nets.encoder import EncoderKind, EncoderSettings
from gandalf.nets.word_table import WordEncoder, WordTable
from gandalf.text.tokens import Tokens
from gandalf.wide.plain import PlainBagOfWords


@dataclass(frozen=True)
class BagOfWordsOptions:
    """Sizes of a bag-of-words encoder, and the name of its block."""

    dim: int = 300
    dropout: float = 0.5
    block: BlockName = "astec"
    centred: bool = False  # subtract the mean vector of the training texts


class BagOfWords(WordEncoder):
    """The sum of word vectors with TF-IDF weights of norm 1, then the block; then the centre is subtracted.

    The block ends in a ReLU, so that all vectors have similar directions: two texts without a common word
    have a cosine of 0.7. After subtracting the mean of the training texts they have a cosine of 0 (see
    docs/lab/training_log.md).
    """

    idf: Tensor  # shape: (vocabulary,)
    centre: Tensor | None  # shape: (dim,)

    def __init__(self, vocabulary: int, options: BagOfWordsOptions) -> None:
        super().__init__()
        self.dim, self.block = options.dim, options.block
        self._plain: _Plain | None = None
        self.words = WordTable(vocabulary, options.dim)
        self.register_buffer("idf", torch.ones(vocabulary))
        self.residual = POINT_BLOCKS[options.block](options.dim, options.dropout)
        self.register_buffer("centre", torch.zeros(options.dim) if options.centred else None)

    def start(self, settings: EncoderSettings, tokens: Tokens) -> None:
        """Weigh the tokens by how few texts have them."""
        self.weigh(torch.from_numpy(tokens.idf()))

    @property
    def is_centred(self) -> bool:
        """True if the mean of the training texts is subtracted."""
        return self.centre is not None

    def weigh(self, idf: Tensor) -> None:
        """Set the words' weights; 0 for padding."""
        self.idf.copy_(idf)

    @torch.no_grad()
    def fit_to_texts(self, ids: Tensor) -> None:
        """Set the centre to the mean vector of these texts, if the encoder has a centre."""  # shape: (B, T)
        if self.centre is None:
            return
        self.centre.zero_()
        was_training = self.training
        self.centre.copy_(self.eval()(ids).mean(dim=0))
        self.train(was_training)

    def look_up(self, ids: Tensor) -> Tensor:
        """Sum the vectors of a text's words."""  # shape: (B, T) -> (B, dim)
        weight = self.idf[ids] * (ids != 0)
        return self.words.weighted_sum(ids, F.normalize(weight, dim=1))

    def apply_layers(self, x: Tensor) -> Tensor:
        """Apply the block and subtract the centre."""  # shape: (B, dim), the same
        encoded: Tensor = self.residual(x)
        return encoded if self.centre is None else encoded - self.centre

    def for_export(self) -> nn.Module:
        """Return the encoder without PyTorch's own kernel for sums, which ONNX would spell out as a loop."""
        return _Exported(self)

    def plain(self) -> PlainBagOfWords | None:
        """Return the encoder in NumPy, for one text; None unless all numbers are of float32 on the CPU.

        It shares the tensors' memory, except for weights that are computed from them. If a tensor was
        replaced or written to, the NumPy encoder is made again.
        """
        old = self._plain
        if old is not None and old.tensors[0] is self.words.weight and old.versions == _versions(old.tensors):
            return old.encoder
        tensors = (self.words.weight, *self.residual.parameters(), *self.residual.buffers())
        if any(each.device.type != "cpu" or each.dtype != torch.float32 for each in tensors):
            return None
        arrays = {name: value.detach().numpy() for name, value in self.state_dict().items()}
        plain = PlainBagOfWords.of(self.block, arrays)
        self._plain = _Plain(plain, tensors, _versions(tensors))
        return plain


@dataclass(frozen=True)
class _Plain:
    encoder: PlainBagOfWords
    tensors: tuple[Tensor, ...]  # that the encoder shares
    versions: list[int]


def _versions(tensors: tuple[Tensor, ...]) -> list[int]:
    """Return numbers that change if a tensor gets other memory or is written to."""
    return [number for each in tensors for number in (each.data_ptr(), each._version)]


class _Exported(nn.Module):
    def __init__(self, bag: BagOfWords) -> None:
        super().__init__()
        self.bag = bag

    def forward(self, tokens: Tensor) -> Tensor:
        """Encode a batch of texts."""  # shape: (B, T) -> (B, dim)
        weight = F.normalize(self.bag.idf[tokens] * (tokens != 0), dim=1)
        summed = torch.bmm(weight.unsqueeze(1), self.bag.words(tokens)).squeeze(1)
        return self.bag.apply_layers(summed)


def _choose(settings: EncoderSettings, max_length: int) -> BagOfWordsOptions:
    return BagOfWordsOptions(settings.dim, settings.dropout, settings.residual, settings.centred)


KIND = EncoderKind(BagOfWords, BagOfWordsOptions, _choose, small_batches=True, weighs_tokens=True)
