#!/usr/bin/env bash
# A served model against its own OpenAPI document: schemathesis sends what it allows and what it does not.
#     tests/schemathesis_run.sh PYTHON SCHEMATHESIS SECONDS
set -euo pipefail
folder=$(mktemp -d)
trap 'kill "${server:-}" 2> /dev/null || true; rm -rf "$folder"' EXIT
PYTHONPATH=tests "$1" - "$folder" << 'PYTHON'
import sys
from pathlib import Path

from small_model import small_model

from gandalf.model import save_model

folder = Path(sys.argv[1])
save_model(small_model(), folder / "model")
save_model(small_model(seed=3, calibrated=False), folder / "baseline")
(folder / "token").write_text("0123456789abcdef")
PYTHON
"$1" -m gandalf serve "$folder/model" --baseline "$folder/baseline" --token-file "$folder/token" --port 0 --device cpu > "$folder/log" &
server=$!
until address=$(grep -o 'http://[^ ;]*' "$folder/log"); do kill -0 "$server"; sleep 0.2; done
"$2" --config-file tests/schemathesis.toml run "${address}openapi.json" --checks all --max-time "$3" \
  --header 'Authorization: Bearer 0123456789abcdef'
