"""Keep a run in a folder: log and checkpoints, one writer at a time, and nothing of others lost."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gandalf.data.claim import LOCK, is_leftover, only_writer, remove
from gandalf.data.dataset import Splits
from gandalf.data.files import written
from gandalf.data.lengths import EMPTY_TEXT_REMEDY, count_empty, cut_sentence
from gandalf.errors import DataError, argument
from gandalf.memory.files import ARRAYS as MEMORY_ARRAYS
from gandalf.memory.files import RECORDS as MEMORY_RECORDS
from gandalf.model_folder import (
    CARD,
    CHECKPOINTS,
    CONFIG,
    FORMAT,
    LABELS,
    METRICS,
    PARTS,
    RECIPE,
    WEIGHTS,
    is_searching,
    read_json,
)
from gandalf.recipe import Recipe
from gandalf.settings import as_toml, changes, read_toml, to_dict, updated
from gandalf.systems import recipe as recipe_of
from gandalf.text import subwords, words
from gandalf.train.checkpoint import Checkpoints
from gandalf.train.logs import EVENTS, LOG, Listener
from gandalf.train.parallel.ranks import ONE, Ranks
from gandalf.wide.wide_model import SETTINGS
from gandalf.wide.wide_model import WORDS as TREE_WORDS

if TYPE_CHECKING:
    from gandalf.model import Part


def _ignore(told: object) -> None:
    pass


@dataclass(frozen=True)
class RunPlace:
    """Where a run keeps its log and checkpoints, and whom it tells; without a folder it keeps nothing."""

    folder: Path | None = None
    resume: bool = False
    minutes: float = 5.0  # between checkpoints
    trackers: tuple[str, ...] = ()  # names in `TRACKERS`
    first_stages: Path | None = None  # folder of first stages that several runs share
    title: str = ""  # of the bar; by default the system's name
    ranks: Ranks = ONE  # processes that train together
    tell: Callable[[str], None] | None = None  # is told of memory, and of long or empty texts
    listeners: tuple[Listener, ...] = ()  # are told of loss and validations
    tell_targets: Callable[[dict[str, Any]], None] = _ignore  # is told how targets were chosen
    tell_search: Callable[[str], None] = _ignore  # is told what a search tries and finds
    take_first_model: Callable[[Part], None] = _ignore  # is given the first usable model of a search
    until: float | None = None  # `time.monotonic` at which the updates end

    @property
    def checkpoints(self) -> Checkpoints | None:
        """The checkpoints of the run; None without a folder."""
        return None if self.folder is None else Checkpoints(self.folder / CHECKPOINTS, ranks=self.ranks)

    @property
    def token_table(self) -> Path | None:
        """File for very many token ids while the run goes on; each rank has its own."""
        name = f"tokens-{self.ranks.rank}.npy" if self.ranks.rank else "tokens.npy"
        return None if self.folder is None else self.folder / CHECKPOINTS / name

    @property
    def block_before(self) -> int | None:
        """Block size in the checkpoint to resume from; None without such a checkpoint."""
        found = self.checkpoints.state() if self.checkpoints is not None and self.resume else {}
        return found.get("block")

    def tell_plan(self, plan: str) -> None:
        """Tell how much memory the run will take; several ranks tell it once."""
        if self.ranks.world > 1:
            self.ranks.say_once(f"on each of {self.ranks.world} ranks {plan}")
        elif self.tell is not None:
            self.tell(plan)

    def tell_cut(self, cut: int, texts: int, length: int) -> None:
        """Tell how many texts are cut to `length` tokens, if any are."""
        if cut and self.tell is not None and not self.ranks.rank:
            self.tell(cut_sentence(cut, texts, length))

    def tell_empty(self, texts: Sequence[str]) -> None:
        """Tell how many training texts are empty, if more than half are."""
        empty = count_empty(texts)
        if 2 * empty > len(texts) and self.tell is not None and not self.ranks.rank:
            share = f"{empty:,} of {len(texts):,} training texts ({empty / len(texts):.1%})"
            self.tell(f"{share} are empty; {EMPTY_TEXT_REMEDY}")

    @property
    def log(self) -> Path | None:
        """Folder of the log; None on every rank but 0."""
        return None if self.ranks.rank else self.folder


@contextmanager
def on_first_rank(ranks: Ranks, make: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
    """Enter a context on rank 0 alone; the other ranks wait until it is entered."""
    with ExitStack() as stack:
        ranks.on_first(lambda: stack.enter_context(make()))
        yield


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Hold the folder for this run alone; make it first, and remove it again if it stays empty."""
    if folder.exists() and not folder.is_dir():
        what = "is a file, but a folder is needed"
        raise DataError(what, remedy="choose another name", file=folder)
    made = not folder.exists()  # otherwise the folder is the user's
    with only_writer(folder, parents=True):
        try:
            folder.mkdir(exist_ok=True)
        except OSError as error:
            raise DataError(f"cannot be written ({error.strerror or error})", file=folder) from error
        try:
            yield
        finally:
            if made:
                with suppress(OSError):  # the folder is not empty
                    folder.rmdir()


CHOICE = "choice.json"  # beside the checkpoints
MARK = "# The recipe of this run of gandalf train."
RUN_FILES = {
    *(RECIPE, LOG, CHECKPOINTS),
    *(CONFIG, WEIGHTS, LABELS, METRICS, CARD, words.FILE, subwords.FILE, subwords.TOKENIZER),
    *(TREE_WORDS, SETTINGS, PARTS),
    *(MEMORY_ARRAYS, MEMORY_RECORDS),
}
_TREE = re.compile(r"tree\d+\.cbor")

State = Literal["new", "unfinished", "finished", "foreign"]


def state_of(folder: Path) -> State:
    """Return whether the folder is free, or holds an unfinished run, a finished run or something else."""
    if folder.exists() and not folder.is_dir():
        raise DataError("is a file, but a folder is needed", remedy="choose another OUT", file=folder)
    names = _names(folder)
    if all(is_leftover(name) for name in names):
        return "new"
    if CONFIG in names and not is_searching(folder) and read_json(folder / CONFIG).get("format") == FORMAT:
        return "finished"
    if RECIPE in names and (folder / RECIPE).read_bytes().startswith(MARK.encode()):
        return "unfinished"
    return "foreign"


def is_finished(folder: Path) -> bool:
    """Return True if the folder holds a finished run; remove checkpoints that a kill at its end left."""
    if state_of(folder) != "finished":
        return False
    remove(folder / CHECKPOINTS)
    return True


def refuse_other_settings(folder: Path, recipe: Recipe) -> None:
    """Refuse to resume a finished run with other settings."""
    path = folder / RECIPE
    if not path.is_file():
        return  # a model without its recipe, such as one made in Python
    given = read_toml(path)
    before = updated(recipe_of(str(given.get("system", Recipe().system))), given, file=path)
    if changed := changes(to_dict(before), to_dict(recipe)):
        raise _other_run(folder, f"settings: {changed}")


def refuse_other_data(folder: Path, splits: Splits) -> None:
    """Refuse to resume a finished run with other data; name and size of the data are compared."""
    config = read_json(folder / CONFIG).get("config")
    before = config.get("data") if isinstance(config, dict) else None
    if isinstance(before, dict) and (changed := changes(before, splits.about)):
        raise _other_run(folder, f"data: {changed}")


def _other_run(folder: Path, differing: str) -> DataError:
    given, instead = argument("resume", True), argument("overwrite", True)
    remedy = f"choose another folder, or replace it with {instead} in place of {given}"
    return DataError(f"holds the finished run of other {differing}", remedy=remedy, file=folder)


def refuse_to_lose(folder: Path, *, resume: bool, overwrite: bool) -> None:
    """Refuse to overwrite files of other commands or people, and a run unless the caller asks for it."""
    if resume and overwrite:
        raise DataError("a run cannot both be resumed and begin anew", remedy="leave out one of the two")
    state = state_of(folder)
    foreign = [name for name in _names(folder) if not _is_part_of_a_run(name)] if state != "new" else []
    if state == "foreign" or (overwrite and foreign):
        what = (
            f"holds {sorted(foreign or _names(folder))[0]}, which is not part of a run, and is not replaced"
        )
        raise DataError(what, remedy="choose another folder, or move that away", file=folder)
    if state == "unfinished" and not (resume or overwrite):
        remedy = f"go on with {argument('resume', True)}, or begin anew with {argument('overwrite', True)}"
        raise DataError("holds a run that is not finished", remedy=remedy, file=folder)
    if state == "finished" and not (resume or overwrite):
        remedy = f"choose another folder, or replace it with {argument('overwrite', True)}"
        raise DataError("holds a model already", remedy=remedy, file=folder)


@contextmanager
def claimed(folder: Path, *, resume: bool, overwrite: bool) -> Iterator[None]:
    """Hold the folder for this run alone; refuse a folder whose files the run would overwrite."""
    with alone_in(folder):
        refuse_to_lose(folder, resume=resume, overwrite=overwrite)
        yield


def remove_first_model(folder: Path) -> None:
    """Remove the first usable model, `config.json` first, so that a kill leaves an unfinished run."""
    remove(folder / CONFIG)
    for name in first_model_names(folder):
        remove(folder / name)


def first_model_names(folder: Path) -> list[str]:
    """Return the files in the folder that only the first usable model of a search has."""
    return [name for name in _names(folder) if name in (TREE_WORDS, SETTINGS) or _TREE.fullmatch(name)]


@contextmanager
def prepared_folder(folder: Path, recipe: Recipe, fresh: bool) -> Iterator[None]:
    """Prepare the folder for a run; if the body fails before any training, leave nothing in it."""
    try:
        # config.json first and the recipe last, so that a kill leaves an unfinished run.
        for name in sorted(_names(folder), key=lambda name: (name != CONFIG, name == RECIPE)):
            if is_leftover(name) or (fresh and _is_part_of_a_run(name)):
                remove(folder / name)
    except OSError as error:
        raise DataError(f"cannot be written ({error.strerror or error})", file=folder) from error
    with written(folder / RECIPE) as file:
        file.write(f"{MARK} Again: gandalf train DATA OUT --config {RECIPE}\n\n")
        file.write(as_toml(recipe, recipe_of(recipe.system)))
    try:
        yield
    except DataError:
        if _names(folder) == [RECIPE]:
            remove(folder / RECIPE)
        raise


def _names(folder: Path) -> list[str]:
    """Return the names in the folder without the lock, which its writer removes."""
    return [path.name for path in folder.iterdir() if path.name != LOCK] if folder.is_dir() else []


def _is_part_of_a_run(name: str) -> bool:
    return name in RUN_FILES or is_leftover(name) or name.startswith(EVENTS) or bool(_TREE.fullmatch(name))
