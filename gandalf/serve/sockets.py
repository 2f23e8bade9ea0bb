"""Open the socket of a server."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from gandalf.errors import DataError

BACKLOG = 2_048


def bound_socket(host: str, port: int) -> socket.socket:
    """Return a socket bound to the address; raise a DataError if the address is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol must be given: asyncio turns off Nagle's delay only on sockets that say TCP.
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    with _as_data_error(found, host, port):
        found.bind((host, port))
    found.set_inheritable(True)
    return found


def listen(to: socket.socket) -> None:
    """Let clients connect; they wait until the server answers."""
    with _as_data_error(to, *to.getsockname()[:2]):
        to.listen(BACKLOG)


def url_of(listening: socket.socket) -> str:
    """Return the address of a bound socket for a browser."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def call_when_open(host: str, port: int, then: Callable[[], None]) -> None:
    """Call `then` in a thread as soon as a server listens at the address."""

    def wait() -> None:
        while True:
            with suppress(OSError), socket.create_connection((host, port), timeout=1):
                break
            time.sleep(0.1)
        then()

    threading.Thread(target=wait, daemon=True).start()


@contextmanager
def _as_data_error(one: socket.socket, host: str, port: int) -> Iterator[None]:
    """Turn an error of the socket into a DataError, and close the socket."""
    try:
        yield
    except (OSError, OverflowError) as error:
        one.close()
        reason = error.strerror if isinstance(error, OSError) else error
        what = f"cannot listen at {host}, port {port} ({reason})"
        raise DataError(what, remedy="choose another --port or --host") from error
