"""Format numbers with their nouns for messages."""

from __future__ import annotations


def counted(number: int, one: str, many: str | None = None) -> str:
    """Return `1 label` or `2 labels`; with a verb: `counted(n, "label has", "labels have")`."""
    return f"{number:,} {one}" if number == 1 else f"{number:,} {one + 's' if many is None else many}"


def weighted_count(number: float, noun: str) -> str:
    """Return `1 point` or `2.5 points`, for weighted counts."""
    return f"{number:g} {noun}{'' if number == 1 else 's'}"


def there_are(number: int, noun: str) -> str:
    """Return `there is 1 label` or `there are 2 labels`."""
    return f"there {'is' if number == 1 else 'are'} {counted(number, noun)}"
