"""What hashes cost: seconds to write and to read a model, with and without comparing them.

    python -m bench.hashes --labels 200000

The processor's time of the fastest of a few tries, so that a busy machine does not count.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.command import argument_parser
from bench.made_up import untrained_model
from gandalf.data.files import sync_folder
from gandalf.model import load_model, save_model
from gandalf.model_folder import CONFIG, check_hashes

TRIES = 5


def main() -> None:
    """Print a line for each thing that is done."""
    parser = argument_parser(__doc__)
    parser.add_argument("--labels", type=int, default=200_000)
    model = untrained_model([f"label number {label}" for label in range(parser.parse_args().labels)])
    with tempfile.TemporaryDirectory(dir=".") as place:
        folder = Path(place) / "model"
        save_model(model, folder)
        size = sum(path.stat().st_size for path in folder.iterdir())
        print(f"{size / 1e6:.0f} MB, {model.num_labels:,} labels")
        print(f"hashes alone:        {fastest(lambda: check_hashes(folder / CONFIG)):.2f} s")
        print(f"load, hashes checked:{fastest(lambda: load_model(folder)):.2f} s")
        print(f"load, --no-verify:   {fastest(lambda: load_model(folder, verify=False)):.2f} s")
        print(f"save with hashes:    {fastest(lambda: save_model(model, folder, overwrite=True)):.2f} s")
        start = time.perf_counter()
        sync_folder(folder)
        print(f"sync (by the clock): {time.perf_counter() - start:.2f} s")


def fastest(work: Callable[[], object]) -> float:
    """Return the seconds of processor time of the fastest try."""
    found = []
    for _ in range(TRIES):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return min(found)


if __name__ == "__main__":
    main()
