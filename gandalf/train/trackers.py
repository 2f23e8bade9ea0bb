"""Send loss and figures of a run to TensorBoard, MLflow and Weights & Biases by their own clients."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

from gandalf.errors import DataError

PROJECT = "gandalf"  # unless MLFLOW_EXPERIMENT_NAME or WANDB_PROJECT names another
_NOT_IN_MLFLOW = re.compile(r"[^\w\-. /]")


class Tracker(Protocol):
    """A service that stores the numbers of a run."""

    id: str | None  # by which a resumed run finds its tracker again; None: by the folder

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        """Store a number of a step."""
        ...

    def close(self) -> None:
        """Write everything that is pending."""
        ...


class _TensorBoard:
    """Event files in the run's folder."""

    id: str | None = None

    def __init__(self, folder: Path, resumed: int | None, before: str | None) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise _missing("TensorBoard", "tensorboard") from error
        # TensorBoard hides steps from `purge_step` on in earlier files of the folder.
        self._writer = SummaryWriter(str(folder), purge_step=0 if resumed is None else resumed + 1)

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        self._writer.add_scalar(tag, scalar_value, global_step)

    def close(self) -> None:
        self._writer.close()


class _MLflow:
    """A run of MLflow, on the server or in the folder that MLFLOW_TRACKING_URI names."""

    def __init__(self, folder: Path, resumed: int | None, before: str | None) -> None:
        try:
            from mlflow.tracking import MlflowClient
        except ImportError as error:
            raise _missing("MLflow", "mlflow") from error
        try:
            self._client: Any = MlflowClient()
            self.id: str | None = before or self._new(folder)
            self._client.get_run(self.id)
        except Exception as error:  # of its server, its store, or the network
            raise _refused("MLflow", error, "see MLFLOW_TRACKING_URI") from error

    def _new(self, folder: Path) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        known = self._client.get_experiment_by_name(name)
        experiment = self._client.create_experiment(name) if known is None else known.experiment_id
        run = self._client.create_run(
            experiment, run_name=_run_name(folder), tags={"folder": str(folder.resolve())}
        )
        return str(run.info.run_id)

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        name = _NOT_IN_MLFLOW.sub("_", tag.replace("@", "_at_"))
        self._client.log_metric(self.id, name, scalar_value, step=global_step)

    def close(self) -> None:
        self._client.set_terminated(self.id)


class _WandB:
    """A run of Weights & Biases; WANDB_MODE=offline keeps it on this machine."""

    def __init__(self, folder: Path, resumed: int | None, before: str | None) -> None:
        try:
            import wandb
        except ImportError as error:
            raise _missing("Weights & Biases", "wandb") from error
        self.id: str | None = before or uuid4().hex[:8]
        project = os.environ.get("WANDB_PROJECT", PROJECT)
        again = "never" if before is None else "allow"
        try:
            self._run: Any = wandb.init(
                project=project,
                name=_run_name(folder),
                id=self.id,
                resume=again,
                config={"folder": str(folder)},
            )
        except Exception as error:  # without a key, or of the network
            raise _refused(
                "Weights & Biases", error, "log in with wandb login, or set WANDB_MODE=offline"
            ) from error

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        self._run.log({tag: scalar_value}, step=global_step)

    def close(self) -> None:
        self._run.finish()  # waits until everything is sent


def _run_name(folder: Path) -> str:
    """Return the name of the run's folder, after the folder of the search if the run is part of a search."""
    of_search = folder.parent.name == "checkpoints"
    return f"{folder.parent.parent.name} {folder.name}" if of_search else folder.name


def _missing(name: str, extra: str) -> DataError:
    return DataError(f"a log for {name} needs {extra}", remedy=f"pip install 'gandalf-xmc[{extra}]'")


def _refused(name: str, error: Exception, remedy: str) -> DataError:
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return DataError(f"{name} cannot be logged to ({reason})", remedy=remedy)


# A tracker takes the run's folder, the step from which the run resumes, and its id from before.
TRACKERS: dict[str, Callable[[Path, int | None, str | None], Tracker]] = {
    "tensorboard": _TensorBoard,
    "mlflow": _MLflow,
    "wandb": _WandB,
}


def open_tracker(name: str, folder: Path, resumed: int | None, before: str | None) -> Tracker:
    """Open a tracker by its name, for a new run or for the run with the id `before`."""
    if name not in TRACKERS:
        raise DataError(f"there is no tracker {name!r}", remedy=f"choose from {', '.join(TRACKERS)}")
    return TRACKERS[name](folder, resumed, before)
