"""An environment for each of the other trainers, since their pins clash.

python -m bench.peers_install FOLDER

What is there already stays. A trainer that cannot be installed is named, and the others go on.
"""

from __future__ import annotations

import subprocess
import venv
from pathlib import Path

from bench.command import argument_parser
from gandalf.lab.peers import PEERS, Trainer

CONSTRAINTS = Path(__file__).parent.parent / "constraints.txt"  # PyTorch's CPU build


def install(folder: Path, trainer: Trainer) -> str:
    """Make the environment; what went wrong, or nothing."""
    mark = folder / ".installed"
    if mark.exists():
        return ""
    venv.create(folder, with_pip=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run(
        [*pip, "-c", str(CONSTRAINTS), *trainer.packages], capture_output=True, text=True, check=False
    )
    if done.returncode:
        return done.stderr.strip().splitlines()[-1]
    mark.touch()
    return ""


def main() -> None:
    """Install them all."""
    parser = argument_parser(__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    for name, trainer in PEERS.items():
        problem = install(folder / name, trainer)
        print(f"{name}: {problem or 'installed'}", flush=True)


if __name__ == "__main__":
    main()
