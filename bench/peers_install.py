"""An environment for each of the other trainers, since their pins clash.

python -m bench.peers_install FOLDER

What is there already stays. A trainer that cannot be installed is named, and the others go on.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

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
    for name, trainer in PEERS.items():
        problem = install(Path(sys.argv[1]) / name, trainer)
        print(f"{name}: {problem or 'installed'}", flush=True)


if __name__ == "__main__":
    main()
