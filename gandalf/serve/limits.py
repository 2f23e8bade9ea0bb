"""What a server takes at most: every one of these is answered with a sentence, never with a crash."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Sizes above which a request is refused."""

    body: int = 1 << 20  # bytes of a request
    texts: int = 256  # of a request, and texts that are predicted in one pass
    length: int = 2_000  # characters of a text
    k: int = 100  # labels for a text
    names: int = 1_000  # in a list of labels to allow or to deny
    waiting: int = 1_024  # texts in the queue; beyond, requests are turned away at once
    explaining: int = 8  # explanations under way at the same time
    new_labels: int = 100  # added by one request
    examples: int = 50  # of a new label, and neighbours
    head: int = 1 << 14  # bytes of the path and the headers of a request
    sending: float = 10.0  # seconds for a client to send a head, and again a body, and to read on
    deadline: float = 30.0  # seconds from the head of a request to the end of its answer


class UnavailableError(Exception):
    """The server cannot do what was asked now; asking again later may help. Its text is one sentence."""

    status = 503


class BusyError(UnavailableError):
    """There is more to do than the server can hold."""

    def __init__(self) -> None:
        super().__init__("the server is busy; ask again in a moment")


class FullError(UnavailableError):
    """There is no room on the disk."""

    status = 507
