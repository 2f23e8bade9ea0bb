"""Check the host name of a request against DNS rebinding.

A page of another site can point its own name at this machine, and could then read the server's answers. Its
requests still carry that name, so requests with unknown names are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from starlette.types import Scope

from gandalf.errors import DataError

LOOPBACK = ("localhost", "127.0.0.1", "::1")
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::[0-9]{1,5})?")


def allowed_hosts(names: Iterable[str]) -> frozenset[str]:
    """Return the loopback names and the given names; raise a DataError for a malformed name."""
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
    """Return the name in a Host header without its port, or None if the header is malformed."""
    match = _HOST.fullmatch(header.lower())
    return None if match is None else (match[1] or match[2]).removesuffix(".")


def asked_host(scope: Scope) -> str | None:
    """Return the host name of a request, or None if it does not have exactly one Host header."""
    headers = [value for name, value in scope["headers"] if name == b"host"]
    return host_name(headers[0].decode("latin-1")) if len(headers) == 1 else None


def is_own_address(host: str, scope: Scope) -> bool:
    """Return True if the host is the address at which the connection arrived."""
    server = scope.get("server")
    return server is not None and host == server[0]
