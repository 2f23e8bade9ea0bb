"""What is on the disk: a watch on the calls that wait for it, since a killed process loses nothing anyway."""

from __future__ import annotations

import os
from pathlib import Path


class SyncedFiles:
    """Files and folders that were synced since the last `forget`, with their sizes at that moment."""

    def __init__(self, monkeypatch):
        self._sizes: dict[int, int] = {}
        fsync = os.fsync

        def watched(handle):
            fsync(handle)
            found = os.fstat(handle)
            self._sizes[found.st_ino] = found.st_size

        monkeypatch.setattr(os, "fsync", watched)

    def forget(self) -> None:
        self._sizes.clear()

    def holds(self, path: Path) -> bool:
        """Return True if the folder was synced, or the file with all that it holds now."""
        found = path.stat()
        return found.st_ino in self._sizes and (path.is_dir() or self._sizes[found.st_ino] == found.st_size)
