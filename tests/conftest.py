from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))  # tests share `strategies`

# Same examples on every run, and no deadline: a slow machine is not a bug.
settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=100)
settings.load_profile("repeatable")

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder with the larger real data sets, which may not be committed."""
    if not SHARED.is_dir():
        pytest.skip(f"the larger data sets are not part of the repository and not found in {SHARED}")
    return SHARED
