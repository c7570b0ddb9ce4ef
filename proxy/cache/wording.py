"""The words that frame a question and do not tell it from others, in English.

Whatever is in no list here counts as what is asked, so a gap costs a hit. A line too many would
serve a wrong answer: the lists have no opposites, no pronouns beyond "how do I" and the like, no
tenses, and nothing that says how many.
"""

from __future__ import annotations

PLAIN = "WHAT"
ASKING = frozenset({PLAIN, "HOW", "WHY", "WHEN", "WHERE", "WHO", "CAN"})
TYING = frozenset({"about", "at", "for", "in", "of", "on"})  # between a word and what it depends on
_LOOSE = """
    , a actually am an are be been being do does exactly is it kindly please really simply that the
    there
"""
LOOSE = frozenset(_LOOSE.split())

_ONE = r"(?: (?:i|we|you|one))?"
_MAY = r"(?:allowed|permitted|possible)(?: for me)?(?: to)?"
# Patterns, in this order, and what they leave of what they match.
FRAMES: tuple[tuple[str, str], ...] = (
    (r"^(?:hi|hello|hey|thanks)(?!-)", ""),
    (r"^(?:i want|i need|i would like|i'd like) to know", ""),
    (r"(?:can|could|would|will) you(?: please| kindly)?", ""),
    (r"do you know", ""),
    (r"(?:give|show) me", "give"),
    (r"what(?: is|'s|s) the reason(?: that| why)?", "WHY"),
    (r"(?:at )?(?:what|which) time", "WHEN"),
    (r"what(?: is|'s) the best time", "WHEN best time"),
    (r"what(?: is|'s) (?:the|a) (?:best |easiest |right |good )?way to", "HOW"),
    (rf"how (?:do|can|could|should|would|shall|might|to){_ONE}", "HOW"),
    (rf"(?:am i|are we|is it) {_MAY}", "CAN"),
    (r"can(?:no|')t(?: (?:i|we|one))?", "CAN not"),
    (r"(?:can|could|may|might)(?: (?:i|we|one))?", "CAN"),
    (r"do (?:i|we|one)", ""),
    (r"(?:explain|describe|define)(?: to me)?", PLAIN),
    (r"tell me(?: about)?", PLAIN),
    (r"(?:what|which)(?:'s|'re)?", PLAIN),
    (r"(?:by )?who(?:m|'s)?", "WHO"),
    (r"how(?:'s)?", "HOW"),
    (r"why(?:'s)?", "WHY"),
    (r"when(?:'s)?(?: CAN)?", "WHEN"),
    (r"where(?:'s)?(?: CAN)?", "WHERE"),
    (r"it's|that's|there's", ""),
    (r"get in touch with|reach out to", "contact"),
    (r"regular expressions?|regexp?(?:es)?", "regex"),
    (r"e-mail", "email"),
    (r"wi-fi", "wifi"),
    (r"WHAT(?= +(?:CAN|HOW|WHAT|WHEN|WHERE|WHO|WHY)\b)", ""),  # "explain how" asks how
)

_ALIKE = """
    buy purchase; remove delete erase; start begin; end finish; big large; fast quick rapid;
    closest nearest; picture photo photograph; phone telephone; movie film; repair fix mend;
    price cost; mean meaning; color colour; favorite favourite; center centre; license licence;
    program programme; gray grey; per each; need needed require required; also too
"""
_NUMBERS = """
    zero one two three four five six seven eight nine ten eleven twelve
"""
SAME: dict[str, str] = {
    other: words[0] for line in _ALIKE.split(";") for words in [line.split()] for other in words[1:]
} | {word: str(number) for number, word in enumerate(_NUMBERS.split())}
