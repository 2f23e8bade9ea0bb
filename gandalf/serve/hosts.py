"""Names that a server answers to.

A page of another site can point its own name at this machine (DNS rebinding), and would then read what the
server says. Its requests still carry that name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from starlette.types import Scope

from gandalf.errors import DataError

LOOPBACK = ("localhost", "127.0.0.1", "::1")
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::[0-9]{1,5})?")


def allowed_hosts(names: Iterable[str]) -> frozenset[str]:
    """Return the names of this machine to itself and the given ones, or refuse what is no name."""
    found = set(LOOPBACK)
    for name in names:
        known = host_name(f"[{name}]" if name.count(":") > 1 else name)
        if known is None or (":" in name) != (":" in known):
            raise DataError(
                f"{name!r} is not the name of a host",
                remedy="give --host and --allow-host a name or an address without a scheme or a port",
            )
        found.add(known)
    return frozenset(found)


def host_name(header: str) -> str | None:
    """Return the name in a Host header without its port, or None if there is none."""
    match = _HOST.fullmatch(header.lower())
    return None if match is None else (match[1] or match[2]).removesuffix(".")


def asked_host(scope: Scope) -> str | None:
    """Return the name that a request was sent to, or None if its head does not have exactly one."""
    headers = [value for name, value in scope["headers"] if name == b"host"]
    return host_name(headers[0].decode("latin-1")) if len(headers) == 1 else None


def is_own_address(host: str, scope: Scope) -> bool:
    """Return True if a request names the address that its connection came in at."""
    server = scope.get("server")
    return server is not None and host == server[0]
