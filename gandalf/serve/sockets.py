"""Where a server listens."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from gandalf.errors import DataError

BACKLOG = 2_048


def bound(host: str, port: int) -> socket.socket:
    """A socket at an address that nobody listens at, or one sentence."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Said to be TCP: asyncio sends answers without delay only on sockets that are.
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    with _said(found, host, port):
        found.bind((host, port))
    found.set_inheritable(True)
    return found


def listen(to: socket.socket) -> None:
    """From here on, whoever comes too early waits."""
    with _said(to, *to.getsockname()[:2]):
        to.listen(BACKLOG)


def address(of: socket.socket) -> str:
    """Where a browser finds it."""
    host, port = of.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def when_open(host: str, port: int, then: Callable[[], None]) -> None:
    """Wait in a thread of its own until someone listens there."""

    def wait() -> None:
        while True:
            with suppress(OSError), socket.create_connection((host, port), timeout=1):
                break
            time.sleep(0.1)
        then()

    threading.Thread(target=wait, daemon=True).start()


@contextmanager
def _said(one: socket.socket, host: str, port: int) -> Iterator[None]:
    try:
        yield
    except (OSError, OverflowError) as error:
        one.close()
        reason = error.strerror if isinstance(error, OSError) else error
        what = f"cannot listen at {host}, port {port} ({reason})"
        raise DataError(what, remedy="choose another --port or --host") from error
