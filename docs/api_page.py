"""Write docs/reference/api.md, the public names of the package, from the code: `python docs/api_page.py`."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import gandalf

_QUOTED = re.compile(r"""(: |-> )(?:'([^']*)'|"([^"]*)")""")  # annotations, which are strings
PAGE = Path(__file__).parent / "reference" / "api.md"
HEAD = """# Public names

Everything that `gandalf` exports, with types and what it does: {number} names. Other modules may change.
Made from the code by `python docs/api_page.py`; a test holds the page to it.
"""


def page() -> str:
    """Return the page as it follows from the code."""
    entries = [_entry(name, getattr(gandalf, name)) for name in gandalf.__all__]
    index = " · ".join(f"[`{name}`](#{name.lower()})" for name in gandalf.__all__)
    return "\n".join([HEAD.format(number=len(entries)), index, "", *entries])


def _entry(name: str, found: object) -> str:
    kind = "class " if inspect.isclass(found) else ""
    lines = [f"## {name}", "", "```text", f"{kind}{_signature(name, found)}", "```", "", _prose(found), ""]
    if inspect.isclass(found):
        lines += [*_members(found), ""]
    return "\n".join(lines)


def _members(found: type) -> list[str]:
    """Return a line for each public method and property that the class itself or a base of ours defines."""
    own = [base for base in found.__mro__ if base.__module__.startswith("gandalf")]
    members = {name: value for base in reversed(own) for name, value in vars(base).items()}
    lines = []
    for name, value in members.items():
        if name.startswith("_") or (not callable(getattr(found, name, None)) and not _is_property(value)):
            continue
        function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        shown = name if _is_property(value) else _signature(name, function, method=True)
        lines.append(f"- `{shown}`: {_first(getattr(value, 'func', function))}")
    return lines


def _is_property(value: object) -> bool:
    return isinstance(value, property) or type(value).__name__ == "cached_property"


def _signature(name: str, found: object, method: bool = False) -> str:
    try:
        signature = inspect.signature(found)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return name
    parameters = list(signature.parameters.values())
    if method and parameters and parameters[0].name in ("self", "cls"):
        signature = signature.replace(parameters=parameters[1:])
    plain = str(signature).replace("<factory>", "...")
    plain = _QUOTED.sub(lambda quoted: quoted[1] + (quoted[2] or quoted[3]), plain)
    return name + plain if len(plain) < 100 or method else name + _broken(plain)


def _broken(signature: str) -> str:
    """Break a long signature after each parameter."""
    depth, out = 0, ""
    for letter in signature:
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(letter, 0)
        if letter == " " and depth == 1 and out.endswith(","):
            out += "\n    "
            continue
        if letter == ")" and depth == 0:
            out += "\n"
        out += letter
        if letter == "(" and depth == 1:
            out += "\n    "
    return out


def _prose(found: object) -> str:
    return inspect.getdoc(found) or ""


def _first(found: object) -> str:
    return (inspect.getdoc(found) or "").split("\n\n")[0].replace("\n", " ")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
