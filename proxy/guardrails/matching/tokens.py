"""The tokens of RE2's pattern syntax, for readers of patterns that RE2 has accepted.

The reader of the standard library is private and reads another language: RE2 has ``\\z``, ``\\pL``
and ``\\Q..\\E``, and takes ``{,5}`` literally.
"""

from __future__ import annotations

import re

TOKENS = re.compile(
    r"""
      \\Q(?P<quoted>.*?)(?:\\E|\Z)
    | (?P<flags>\(\?[imsU-]+\))
    | (?P<opens>\((?:\?(?:P?<\w+>|[imsU-]*:))?)
    | (?P<closes>\))
    | (?P<other>\|)
    | (?P<repeats>[*+?]|\{(?P<least>[0-9]+)(?P<comma>,(?P<most>[0-9]*))?\})\??
    | (?P<between>\^|\$|\\[AzbB])
    | (?P<byte>\\C)
    | (?P<one>
        \[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]
      | \\[pP](?:\{[^}]*\}|.)
      | \\x(?:\{[0-9A-Fa-f]+\}|..)
      | \\[0-7]{1,3}
      | \\.
      | .
      )
    """,
    re.VERBOSE | re.DOTALL,
)


MAX_NESTING = 64


def check_syntax(pattern: str) -> None:
    """Raise ``ValueError`` if groups are nested too deep for readers that recurse, and for ``\\C``,
    which matches a byte of a character."""
    depth = 0
    for token in TOKENS.finditer(pattern):
        if token["byte"]:
            raise ValueError("\\C is not supported, because it matches a byte")
        depth += (token.lastgroup == "opens") - (token.lastgroup == "closes")
        if depth > MAX_NESTING:
            raise ValueError(f"its groups are nested more than {MAX_NESTING} deep")
