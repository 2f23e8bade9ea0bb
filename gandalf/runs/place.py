"""Where a run keeps what it writes, who trains in it, and who is told of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gandalf.data.lengths import EMPTY_TEXT_REMEDY, count_empty, cut_sentence
from gandalf.train.checkpoint import Checkpoints
from gandalf.train.logs import Listener
from gandalf.train.parallel.ranks import ONE, Ranks

CHECKPOINTS = "checkpoints"  # folder in the run's


@dataclass(frozen=True)
class Place:
    """Where a run keeps its log and checkpoints, and how often; without a folder it keeps nothing."""

    folder: Path | None = None
    resume: bool = False
    minutes: float = 5.0  # between checkpoints
    tensorboard: bool = False
    first_stages: Path | None = None  # folder of encoders that siamese stages left, for runs that share one
    title: str = ""  # of the bar; by default the system's name
    ranks: Ranks = ONE  # who train together
    tell: Callable[[str], None] | None = None  # is told of memory, and of texts cut or empty
    listeners: tuple[Listener, ...] = ()  # are told of loss and validation as the run goes on

    @property
    def checkpoints(self) -> Checkpoints | None:
        """The run's checkpoints."""
        return None if self.folder is None else Checkpoints(self.folder / CHECKPOINTS, ranks=self.ranks)

    @property
    def token_table(self) -> Path | None:
        """Where very many token ids are put while the run goes on: each rank makes its own."""
        name = f"tokens-{self.ranks.rank}.npy" if self.ranks.rank else "tokens.npy"
        return None if self.folder is None else self.folder / CHECKPOINTS / name

    @property
    def block_before(self) -> int | None:
        """Labels met at a time by the run that is to be resumed; None: there is none."""
        found = self.checkpoints.state() if self.checkpoints is not None and self.resume else {}
        return found.get("block")

    def say(self, plan: str) -> None:
        """Tell how much memory the run will take: several ranks tell it once."""
        if self.ranks.world > 1:
            self.ranks.say_once(f"on each of {self.ranks.world} ranks {plan}")
        elif self.tell is not None:
            self.tell(plan)

    def say_cut(self, cut: int, texts: int, length: int) -> None:
        """Tell how many texts are longer than what is read of them, if any are."""
        if cut and self.tell is not None and not self.ranks.rank:
            self.tell(cut_sentence(cut, texts, length))

    def say_empty(self, texts: Sequence[str]) -> None:
        """Tell how many training texts are empty, if more than half are."""
        empty = count_empty(texts)
        if 2 * empty > len(texts) and self.tell is not None and not self.ranks.rank:
            share = f"{empty:,} of {len(texts):,} training texts ({empty / len(texts):.1%})"
            self.tell(f"{share} are empty; {EMPTY_TEXT_REMEDY}")

    @property
    def log(self) -> Path | None:
        """Where the log is written: by the first rank, for all."""
        return None if self.ranks.rank else self.folder
