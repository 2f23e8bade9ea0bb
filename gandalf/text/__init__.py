"""Texts become tables of token ids: words, sub-words, and the vectors that words may start from."""
