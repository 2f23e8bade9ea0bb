"""Count requests and batches of a server, for Prometheus."""

from __future__ import annotations

import os

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector

FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # environment variable: the folder in which workers share their counts
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)

CONTENT_TYPE = CONTENT_TYPE_LATEST


class Metrics:
    """The counts of a server; with several workers, the counts of all of them."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        shared = bool(os.environ.get(FOLDER))
        registry = self._registry
        self.requests = Counter(
            "gandalf_requests", "Requests by path and status.", ["path", "status"], registry=registry
        )
        self.seconds = Histogram(
            "gandalf_request_seconds", "Time to answer.", ["path"], buckets=SECONDS, registry=registry
        )
        self.batches = Histogram(
            "gandalf_batch_texts", "Texts predicted in one pass.", buckets=SIZES, registry=registry
        )
        self.waiting = Gauge(
            "gandalf_waiting_texts", "Texts in the queue.", registry=registry, multiprocess_mode="livesum"
        )
        self.labels = Gauge(
            "gandalf_labels", "Labels of the model.", registry=registry, multiprocess_mode="livemax"
        )
        if shared:
            self._registry = CollectorRegistry()
            MultiProcessCollector(self._registry)  # type: ignore[no-untyped-call]

    def text(self) -> bytes:
        """Return all counts in Prometheus' text format."""
        return generate_latest(self._registry)
