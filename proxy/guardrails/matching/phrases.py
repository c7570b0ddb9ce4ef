"""How rules for words are written: a space is what stands between words, ``<3>`` up to three words.

Other names in angle brackets are word lists below. What comes out is plain RE2.
"""

from __future__ import annotations

import re

# Letters as far as phrases need to know them; RE2's own \W knows ASCII only, and \pL is hundreds of
# ranges, with which rules take thirty times as long to compile.
_LETTERS = r"A-Za-z\x{C0}-\x{1FFF}\x{2070}-\x{10FFFF}"
BETWEEN = f"[^0-9{_LETTERS}]"
_CLASSES = {r"[\pL\pN]": f"[0-9{_LETTERS}]", r"\pL": f"[{_LETTERS}]", r"\PL": f"[^{_LETTERS}]"}
_OF_EITHER_CASE = "\\x{B5}"  # beside them: the one whose other case is among them
_LISTS = {
    "drop": (
        r"\b(?:ignor(?:e|ing)|disregard(?:ing)?|forget(?:ting)?|overlook|neglect|discard|"
        r"abandon|overrid(?:e|ing)|overrule|bypass(?:ing)?|circumvent|set aside|put aside|do "
        r"not follow|don.?t follow|stop following|do not obey|pay no attention to)"
    ),
    "law": (
        r"(?:instructions?|prompts?|directions?|directives?|guidelines?|guidance|rules?|"
        r"commands?|orders?|programming|training|constraints?|restrictions?|limitations?|"
        r"protocols?|safeguards?|polic(?:y|ies)|safety|ethics)\b"
    ),
    "any": (
        r"(?:(?:all|any|every|each|of|the|these|those|that|this|and|or|other|such|what|"
        r"whatever) ){0,5}"
    ),
    "old": (
        r"(?:your|previous|previously|prior|earlier|above|preceding|original|initial|former|"
        r"foregoing|system|existing|past|in.?built|built.?in|openai.{0,2})"
    ),
    "unbound": (
        r"(?:unrestricted|unfiltered|uncensored|unmoderated|jailbroken|amoral|(?:no|any|without|"
        r"zero) <2>(?:rules|restrictions|limits|limitations|filters?|ethics|morals|guidelines|"
        r"guardrails|censorship|boundaries|safeguards))\b"
    ),
    "secret": (
        r"(?:passwords?|api\W?keys?|credentials|secrets|private keys?|access tokens?|customer "
        r"(?:data|list|database|records)|(?:conversation|chat) history|system prompt|"
        r"environment variables)"
    ),
}


def phrase(written: str) -> str:
    """Return the RE2 pattern of a phrase."""
    for name, words in _LISTS.items():
        written = written.replace(f"<{name}>", words)
    written = re.sub(r"<(\d+)>", r"(?:[\\pL\\pN]+ ){0,\1}?", written)
    for known, cheap in _CLASSES.items():
        written = written.replace(known, cheap)
    return written.replace(" ?", f"(?:{BETWEEN}+)?").replace(" ", f"{BETWEEN}+")


def unfolded(pattern: str) -> str:
    """Return a pattern that matches the same in letters of either case, and compiles in half the
    time: RE2 looks for the other case of each letter of a class, wherever the class stands, and
    these have both."""
    for known in _CLASSES.values():
        whole = known.replace("]", f"{_OF_EITHER_CASE}]")
        pattern = pattern.replace(known, f"(?-i:{whole})")
    return pattern.replace(BETWEEN, f"(?-i:{BETWEEN[:-1]}{_OF_EITHER_CASE}])")
