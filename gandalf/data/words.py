"""Words of a short text, for any language: the one splitter that features and statistics share."""

from __future__ import annotations

import re
import unicodedata

# Scripts written without spaces between words: each of their characters stands as a word of its own.
_UNSPACED = ("CJK ", "HIRAGANA", "KATAKANA", "BOPOMOFO", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN")

_EMOJI = 0x2600  # symbols from here on stand for things; those below, such as (c) and degrees, for nothing


class _CharacterClasses(dict[int, str]):
    """Table for `str.translate` from characters to their classes, learnt as characters turn up."""

    def __missing__(self, code: int) -> str:
        self[code] = found = _character_class(chr(code))
        return found


def _character_class(character: str) -> str:
    """U upper case, l other letter, c a letter that is a word, or an emoji, m mark, d digit, else a space."""
    category = unicodedata.category(character)
    if category[0] == "L":
        if unicodedata.name(character, "").startswith(_UNSPACED):
            return "c"
        return "U" if category in ("Lu", "Lt") else "l"
    if category == "So" and ord(character) >= _EMOJI:
        return "c"
    return {"M": "m", "N": "d"}.get(category[0], " ")


_CLASSES = _CharacterClasses()

# A run of capitals, leaving the last one to the lower-case word it opens ("HTTPServer" is HTTP, Server);
# a word with at most one capital in front; digits; one character of an unspaced script, or an emoji.
# Marks (accents without a composed form, vowel signs) stay with their letter.
_WORD = re.compile(r"(?:Um*)+(?![lm])|(?:Um*)?l[lm]*|d[dm]*|cm*")


def split_words(text: str) -> list[str]:
    """Lower-cased words, cut at camelCase, between letters and digits, and at everything that is neither."""
    text = unicodedata.normalize("NFC", text)
    return [text[start:end].lower() for start, end in word_places(text)]


def word_places(text: str) -> list[tuple[int, int]]:
    """Where each word of a text in Unicode's composed form begins and ends."""
    return [found.span() for found in _WORD.finditer(text.translate(_CLASSES))]
