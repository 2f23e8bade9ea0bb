"""Set the limits of a server. A request beyond a limit is answered by an error."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Sizes and times above which a request is refused."""

    body: int = 1 << 20  # bytes of a request body
    texts: int = 256  # texts in a request, and in one batch
    length: int = 2_000  # characters of a text
    k: int = 100  # labels for a text
    names: int = 1_000  # labels in a list to allow or to deny
    waiting: int = 1_024  # texts in the queue; further requests are refused at once
    explaining: int = 8  # explanations in progress
    new_labels: int = 100  # labels, or examples, in one request
    examples: int = 50  # examples of a new label; also its neighbours
    head: int = 1 << 14  # bytes of the path and the headers of a request
    sending: float = 10.0  # seconds for a client to send a head, to send a body, and to read on
    deadline: float = 30.0  # seconds from the head of a request to the end of its answer


class UnavailableError(Exception):
    """The server cannot do this now; the client may try again later. The text is one sentence."""

    status = 503


class BusyError(UnavailableError):
    """The queue of the server is full."""

    def __init__(self) -> None:
        super().__init__("the server is busy; ask again in a moment")


class FullError(UnavailableError):
    """The disk is full."""

    status = 507
