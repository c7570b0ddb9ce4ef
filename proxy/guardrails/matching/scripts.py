"""Scripts that put no space between words, of which each letter may end one."""

from __future__ import annotations

import re

# Thai and its kin, Burmese, Khmer, kana, Han.
WITHOUT_SPACES = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
UNSPACED_LETTER = re.compile(f"[{WITHOUT_SPACES}]")
_LAST = re.compile(f".*[{WITHOUT_SPACES}]", re.DOTALL)


def last_unspaced(text: str, since: int, end: int) -> int:
    """Return the place of the last letter of such a script before ``end``, -1 if there is none from
    ``since`` on."""
    found = _LAST.match(text, since, end)
    return -1 if found is None else found.end() - 1
