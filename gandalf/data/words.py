"""Split short texts of any language into words, for features and statistics alike."""

from __future__ import annotations

import re
import unicodedata

# Unicode names of scripts without spaces between words: each character counts as a word.
_UNSPACED = ("CJK ", "HIRAGANA", "KATAKANA", "BOPOMOFO", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN")

_EMOJI = 0x2600  # symbols from this code point on count as words; lower ones, such as (c), as spaces


class _CharacterClasses(dict[int, str]):
    """A table for `str.translate` from characters to their classes, filled on first use of a character."""

    def __missing__(self, code: int) -> str:
        self[code] = found = _character_class(chr(code))
        return found


def _character_class(character: str) -> str:
    """Return U for upper case, l for other letters, c for an emoji or a letter that is a word, m for a mark,
    d for a digit, and else a space."""
    category = unicodedata.category(character)
    if category[0] == "L":
        if unicodedata.name(character, "").startswith(_UNSPACED):
            return "c"
        return "U" if category in ("Lu", "Lt") else "l"
    if category == "So" and ord(character) >= _EMOJI:
        return "c"
    return {"M": "m", "N": "d"}.get(category[0], " ")


_CLASSES = _CharacterClasses()

# Alternatives: a run of capitals without the first letter of the next word ("HTTPServer" is HTTP, Server);
# a word with at most one capital in front; digits; one character of an unspaced script, or an emoji.
# Marks (accents without a composed form, vowel signs) stay with their letter.
_WORD = re.compile(r"(?:Um*)+(?![lm])|(?:Um*)?l[lm]*|d[dm]*|cm*")


def split_words(text: str) -> list[str]:
    """Return the lower-cased words of a text, also split at camelCase and between letters and digits."""
    text = unicodedata.normalize("NFC", text)
    return [text[start:end].lower() for start, end in word_places(text)]


def word_places(text: str) -> list[tuple[int, int]]:
    """Return the start and end of each word; the text must be in Unicode's composed form (NFC)."""
    return [found.span() for found in _WORD.finditer(text.translate(_CLASSES))]
