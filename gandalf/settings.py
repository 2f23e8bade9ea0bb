"""Read settings from TOML and dictionaries, change them by `key=value`, and print them.

Settings are nested frozen dataclasses. A setting is a bool, int, float, str, a `Literal` of those, a tuple of
those, `X | None`, or another such dataclass, which is a table in TOML. A mistake of the user raises a
`DataError`.
"""

from __future__ import annotations

import json
import re
import tomllib
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, Field, field, fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from gandalf.errors import DataError

T = TypeVar("T")
Value = Any  # value of a setting: a scalar, a tuple, None, or a dataclass of settings
Kind = Any  # declared type of a setting
NONE = "none"  # TOML has no null


class Kinds(dict[str, str]):
    """Kinds of one thing by name, each with the place `module:object` that owns it.

    The place is imported when it is asked for. To add a kind from outside, set a name.
    """

    def __init__(self, what: str, places: Mapping[str, str]) -> None:
        super().__init__(places)
        self.what = what

    def load(self, name: str) -> Any:  # noqa: ANN401  each table has objects of its own type
        """Return the object of a kind."""
        if name not in self:
            raise DataError(f"there is no {self.what} {name!r}", remedy=f"choose from {', '.join(self)}")
        return resolve_name(self[name])


def setting(default: T, help: str, *, choices: Callable[[], Sequence[str]] | None = None) -> T:
    """Declare a field of a settings dataclass; `as_toml` writes `help` above it.

    `choices` returns the allowed texts, for a table that can be extended.
    """
    return field(default=default, metadata={"help": help, "choices": choices})


def from_dict(cls: type[T], given: Mapping[str, Any], *, file: str | Path | None = None) -> T:
    """Return settings from a dictionary; missing keys keep their defaults."""
    return cast(T, _with_file(file, lambda: _table(cls, MISSING, given, "")))


def updated(value: T, given: Mapping[str, Any], *, file: str | Path | None = None) -> T:
    """Return the settings with the changes in the dictionary, for example a TOML file of differences."""
    return cast(T, _with_file(file, lambda: _table(type(value), value, given, "")))


def to_dict(value: Value) -> dict[str, Any]:
    """Return the settings as nested dictionaries for JSON; `from_dict` reads them back."""
    return {item.name: _plain(getattr(value, item.name)) for item in fields(value)}


def override(value: T, changes: Iterable[str]) -> T:
    """Return the settings after changes such as `stage.epochs=5`, or `epochs=5` if the name is unique."""
    for change in changes:
        key, equals, text = change.partition("=")
        if not equals or not key.strip():
            raise DataError(f"'{change}' is not a change of a setting", remedy="write it as key=value")
        value = _overridden(value, _full_path(type(value), key.strip()), text.strip())
    return value


def read_toml(path: str | Path) -> dict[str, Any]:
    """Return a TOML file as nested dictionaries."""
    try:
        return tomllib.loads(Path(path).read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror or error})", file=path) from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise DataError("is not UTF-8 text, as TOML must be", file=path, line=line) from error
    except tomllib.TOMLDecodeError as error:
        what, line_number = _message_and_line(str(error))
        raise DataError(f"is not valid TOML: {what}", file=path, line=line_number) from error


def as_toml(value: Value, base: Value = None) -> str:
    """Return the settings as a commented TOML file that reads back to an equal value.

    `base` holds the settings that the file will change by `updated`; without it, the defaults of `from_dict`.
    """
    lines = list(_toml_table(value, MISSING if base is None else base, ""))
    return "\n".join(lines).strip("\n") + "\n"


def differing(one: Mapping[str, Any], other: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Return the dotted names of the settings in which two dictionaries differ."""
    found = []
    for key in dict.fromkeys([*one, *other]):
        left, right = one.get(key), other.get(key)
        if isinstance(left, Mapping) and isinstance(right, Mapping):
            found += differing(left, right, f"{prefix}{key}.")
        elif left != right or (key in one) != (key in other):
            found.append(f"{prefix}{key}")
    return found


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Return the differences of two dictionaries of settings as text; "" if they are equal."""
    before, after = (json.loads(json.dumps(each)) for each in (before, after))  # as JSON reads them back
    names = differing(before, after)
    return ", ".join(
        f"{name} was {_value_at(before, name)} and is {_value_at(after, name)}" for name in names
    )


def _value_at(config: Mapping[str, Any], name: str) -> str:
    value: Any = config
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return json.dumps(value)


# Reading: each function takes the declared type, the present value, the given value, and the dotted name.


def _table(kind: Kind, base: Value, given: object, path: str) -> Value:
    """Return a dataclass from a table; missing keys come from `base`, or else from the defaults."""
    if not isinstance(given, Mapping):
        raise _wrong_value(path, "a table of settings", given)
    types_of, known = get_type_hints(kind), {item.name: item for item in fields(kind)}
    for key in given:
        if key not in known:
            raise _unknown(kind, str(key), path)
    values = {}
    for name, item in known.items():
        before = _before(item, base)
        dotted = f"{path}.{name}" if path else name
        if name in given:
            choices = item.metadata.get("choices")
            of_type = types_of[name] if choices is None else Literal[tuple(choices())]
            values[name] = _read(of_type, before, given[name], dotted)
        elif before is MISSING:
            raise DataError(
                f"the setting '{dotted}' is missing and has no default", remedy=f"give a value for {dotted}"
            )
        else:
            values[name] = before
    return kind(**values)


def _before(item: Field[Any], base: object) -> Value:
    """Return the value of a field that is not given, or `MISSING` if it has no default."""
    if base is not MISSING and base is not None:
        return getattr(base, item.name)
    if item.default_factory is not MISSING:
        return item.default_factory()
    return item.default


def _read(kind: Kind, base: Value, given: object, path: str) -> Value:
    if is_dataclass(kind):
        return _table(kind, base, given, path)
    reader = _READERS.get(get_origin(kind) or kind)
    if reader is None:
        raise TypeError(f"settings cannot be of type {kind} ({path})")
    return reader(kind, base, given, path)


def _optional(kind: Kind, base: Value, given: object, path: str) -> Value:
    inner = [part for part in get_args(kind) if part is not types.NoneType]
    if len(inner) != 1 or len(get_args(kind)) != 2:
        raise TypeError(f"settings cannot be of type {kind} ({path})")
    is_choice = get_origin(inner[0]) is Literal and NONE in get_args(inner[0])  # "none" is a value itself
    if given is None or (given == NONE and not is_choice):
        return None
    return _read(inner[0], base, given, path)


def _choice(kind: Kind, base: object, given: object, path: str) -> Value:
    for choice in get_args(kind):
        if choice == given and type(choice) is type(given):
            return choice
    choices = [str(choice) for choice in get_args(kind)]
    near = get_close_matches(str(given), choices, n=1)
    remedy = f"did you mean {_quoted(near[0])}?" if near else ""
    raise _wrong_value(path, f"one of {', '.join(choices)}", given, remedy)


def _tuple(kind: Kind, base: object, given: object, path: str) -> tuple[Any, ...]:
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise _wrong_value(path, "a list", given)
    inner = get_args(kind)
    of_each = inner[:1] * len(given) if inner[1:] == (...,) else inner
    if len(of_each) != len(given):
        raise _wrong_value(path, f"a list of {len(of_each)}", list(given))
    return tuple(
        _read(part, MISSING, item, f"{path}[{number}]")
        for number, (part, item) in enumerate(zip(of_each, given, strict=True))
    )


def _scalar(kind: Kind, base: object, given: Value, path: str) -> Value:
    phrase, accepted = _SCALARS[kind]
    if type(given) not in accepted or given != given:  # type(): Python treats True as int; NaN != NaN
        raise _wrong_value(path, phrase, given)
    try:
        return kind(given)
    except OverflowError:
        raise _wrong_value(path, phrase, given) from None


_SCALARS: dict[type, tuple[str, tuple[type, ...]]] = {
    bool: ("true or false", (bool,)),
    int: ("a whole number", (int,)),
    float: ("a number", (int, float)),
    str: ("a text", (str,)),
}
_READERS: dict[Any, Callable[[Any, Any, Any, str], Any]] = {
    **dict.fromkeys(_SCALARS, _scalar),
    tuple: _tuple,
    Literal: _choice,
    Union: _optional,
    types.UnionType: _optional,
}


# Naming: dotted paths to settings, and errors about unknown names.


def _paths(kind: Kind, prefix: str = "") -> Iterator[str]:
    """Yield the dotted names of all settings, each table before its settings."""
    for name, part in get_type_hints(kind).items():
        yield f"{prefix}{name}"
        for inner in (part, *get_args(part)):
            if is_dataclass(inner):
                yield from _paths(inner, f"{prefix}{name}.")


def _full_path(kind: type, key: str) -> str:
    """Return the full name of the setting that the key names, in full or by the end of its name."""
    paths = list(_paths(kind))
    if key in paths:
        return key
    matches = [path for path in paths if path.endswith(f".{key}")]
    if len(matches) > 1:
        raise DataError(f"the setting '{key}' could be {' or '.join(matches)}", remedy="write its full name")
    if not matches:
        raise _unknown(kind, key, "")
    return matches[0]


def _unknown(kind: Kind, key: str, table: str) -> DataError:
    names = {path: path for path in _paths(kind)}
    last_parts = {path.rpartition(".")[2]: path for path in reversed(names)}  # the first of equal names wins
    near = get_close_matches(key, names | last_parts, n=1)
    here = ", ".join(item.name for item in fields(kind))
    remedy = f"did you mean '{(last_parts | names)[near[0]]}'?" if near else f"there are {here}"
    return DataError(f"there is no setting '{key}'" + (f" in [{table}]" if table else ""), remedy=remedy)


def _wrong_value(path: str, expected: str, given: object, remedy: str = "") -> DataError:
    what = f"the setting '{path}'" if path else "the settings"
    return DataError(f"{what} must be {expected}, not {_quoted(given)}", remedy=remedy)


def _quoted(given: object) -> str:
    if isinstance(given, float):
        return repr(given)  # inf and nan; JSON would write Infinity and NaN
    return json.dumps(given, ensure_ascii=False, default=str)


def _with_file(file: str | Path | None, read: Callable[[], Any]) -> Value:
    """Return the result of `read`; add the file to its errors."""
    try:
        return read()
    except DataError as error:
        if file is None or error.problem.file is not None:
            raise
        raise DataError(error.problem.what, remedy=error.problem.remedy, file=file) from error


def _overridden(value: T, path: str, text: str) -> T:
    def at_path(leaf: object) -> dict[str, Any]:
        for part in reversed(path.split(".")):
            leaf = {part: leaf}
        return cast("dict[str, Any]", leaf)

    try:
        return updated(value, at_path(_toml_value(text)))
    except DataError:
        with suppress(DataError):  # for `name=5` if `name` is a text
            return updated(value, at_path(text))
        raise


def _toml_value(text: str) -> object:
    """Return the text as a TOML value; a bare word is a string."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return parsed["value"] if len(parsed) == 1 else text


def _message_and_line(message: str) -> tuple[str, int | None]:
    """Return the message of a TOML error without its place, and its line."""
    found = re.fullmatch(r"(.*) \(at line (\d+), column \d+\)", message, re.DOTALL)
    return (found[1], int(found[2])) if found else (message, None)


# Writing.


def _plain(value: Value) -> Value:
    if is_dataclass(value):
        return to_dict(value)
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _toml_table(value: Value, base: Value, path: str) -> Iterator[str]:
    """Yield the lines of a table: first its scalar settings, since TOML assigns later lines to the inner
    table."""
    tables = []
    for item in fields(value):
        inner, before = getattr(value, item.name), _before(item, base)
        if is_dataclass(inner):
            tables.append((item, inner, before))
            continue
        yield from _help(item)
        silent = inner is None and before is None
        yield f"# {item.name} =" if silent else f"{item.name} = {_toml(inner)}"
    for item, inner, before in tables:
        name = f"{path}{item.name}"
        yield from ("", *_help(item), f"[{name}]", *_toml_table(inner, before, f"{name}."))


def _help(item: Field[Any]) -> list[str]:
    return [f"# {line}".rstrip() for line in item.metadata.get("help", "").splitlines()]


def _toml(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, float):
        return repr(value)  # TOML spells infinity as Python does
    # A TOML string is a JSON string, but DEL must be escaped, too.
    return json.dumps(NONE if value is None else value, ensure_ascii=False).replace("\x7f", "\\u007f")
