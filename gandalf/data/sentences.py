"""Numbers in sentences."""

from __future__ import annotations


def counted(number: int, one: str, many: str | None = None) -> str:
    """`1 label`, `2 labels`; with a verb, `counted(n, "label has", "labels have")`."""
    return f"{number:,} {one}" if number == 1 else f"{number:,} {one + 's' if many is None else many}"


def summed(number: float, noun: str) -> str:
    """`1 point`, `2.5 points`: for counts that weights may have made no whole numbers."""
    return f"{number:g} {noun}{'' if number == 1 else 's'}"


def there_are(number: int, noun: str) -> str:
    """`there is 1 label`, `there are 2 labels`."""
    return f"there {'is' if number == 1 else 'are'} {counted(number, noun)}"
