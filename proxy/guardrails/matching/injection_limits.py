"""What attacks say of a model's own instructions and limits: that they be told, or be dropped.

Nobody else has these: what a manual calls safety measures, what is bypassed on a server and what a
colleague is asked to share are other things, so a rule wants a word beside that says whose it is.
"""

from __future__ import annotations

from proxy.guardrails.matching.phrase_rules import PhraseRule
from proxy.guardrails.matching.phrases import phrase

LIKELY = 0.97

_OWN = (
    r"(?:guidelines?|guardrails?|restrictions?|constraints?|limitations?|limits|programming|"
    r"directives?|safeguards?|censorship|(?:safety|content|ethical|moral|behaviou?ral|alignment|"
    r"moderation|protective|security) (?:measures?|protocols?|training|features?|filter(?:s|ing)?|"
    r"guidelines?|polic(?:y|ies)|restrictions?|constraints?|rules|guardrails?|mechanisms?|"
    r"boundaries|controls|limitations?))\b"
)
_TELLS = r"(?:reveal|disclos|divulg|unveil|expos|leak|recit|verbaliz)(?:e|es|ing)?"
_SHOWS = (
    r"(?:show|tell|give|send|share with|display|print|output|repeat|share|state|provide|list|"
    r"dump|read out)"
)
_SHOWS_ANY = (
    r"(?:(?:show|display|print|output|repeat|shar|stat|provid|list|dump|includ|append|describ|"
    r"reproduc|recit|preface)(?:e|ed|ing)?|tell|telling|give|giving)"
)
_ALONE = (
    r"(?:(?:system |full |entire |complete |exact |actual |initial |original |current |whole |"
    r"own ){0,3}(?:prompt|instruction set|guidelines|restrictions|directives))\b"
)
_PROMPT = (
    r"(?:(?:system |full |entire |complete |exact |actual |initial |original |current |whole "
    r"){0,3}(?:prompt|instruction set|initiali[sz]ation (?:text|prompt|message)|guidelines|"
    r"directives))\b"
)
_INNER = (
    r"(?:operational|operating|behaviou?ral|initiali[sz]ation|foundational|internal|hidden|secret|"
    r"underlying|core) (?:parameters|instructions?|guidelines?|directives?|constraints?|text|"
    r"prompts?|rules|configuration|programming)\b"
)
_SAFETY = (
    r"(?:safety|content|ethical|ethics|moral|alignment) (?:measures?|protocols?|training|"
    r"filter(?:s|ing)?|guidelines?|polic(?:y|ies)|restrictions?|constraints?|moderation|"
    r"guardrails?)\b"
)
_SKIPS = (
    r"(?:bypass(?:es|ed|ing)?|circumvent(?:s|ed|ing)?|ignor(?:e|es|ed|ing)|"
    r"disregard(?:s|ed|ing)?|overrid(?:e|es|ing)|delet(?:e|es|ing)|retract(?:s|ing)?|eras(?:e|ing)|"
    r"cast(?:ing)? aside|shed(?:ding)?|def(?:y|ies|ying)|violat(?:e|es|ing)|evad(?:e|es|ing)|"
    r"abandon(?:s|ing)?|suspend(?:s|ing)?|disabl(?:e|es|ing)|deactivat(?:e|es|ing)|"
    r"remov(?:e|es|ing)|get(?:ting)? (?:around|past)|work(?:ing)? around|break(?:ing)? (?:free "
    r"(?:of|from)|out of)|free (?:yourself )?(?:of|from)|liberate (?:yourself )?from|"
    r"escap(?:e|ing)|turn(?:ing)? off|switch(?:ing)? off|move (?:past|beyond)|(?:look|see|go|step) "
    r"(?:past|beyond|outside)(?: of)?)"
)


def _rule(kind: str, *written: str) -> PhraseRule:
    """Return several phrases as one rule: a pass looks for so many rules."""
    return PhraseRule(kind, LIKELY, phrase("|".join(written)))


OF_LIMITS = (
    _rule(
        "override",
        r"<drop> (?:the |these |those |all |any |every |your )+<1>(?:instructions?|directives?|"
        r"orders|prompts?) (?:above|below|before this|given (?:above|so far|earlier)|you (?:were|"
        r"have been) given)\b",
        r"\b(?:ignor(?:e|ing)|disregard(?:ing)?|forget|discard) (?:(?:all|any|every|of) ){1,3}"
        r"(?:other |further |more )?(?:instructions?|directives?|commands?|orders)\b",
    ),
    _rule(
        "disable_safety",
        rf"\b{_SKIPS} (?:all |any |every |some )?(?:of )?your <3>{_OWN}",
        r"\b(?:your|ai|safety|content|those|these) (?:safety |content )?(?:guidelines|restrictions|"
        r"rules) (?:don.t|do not|no longer|need not) (?:even )?apply (?:here|now|to (?:you|me|us|"
        r"this (?:chat|conversation|session|request|question)|our))\b",
        rf"\b{_SKIPS} (?:all |any |every )(?:of )?(?:the |ai |these |those )?<1>{_SAFETY}",
        r"\bbypass(?:es|ed|ing)? (?:the |all |any |ai |openai.s |of )*(?:content (?:filter\w*|"
        r"polic(?:y|ies)|moderation|restrictions?)|safety (?:training|filters?|guidelines?|"
        r"guardrails?|restrictions?)|ethical \w+|guardrails|ai (?:safety|restrictions?|"
        r"guidelines|filters?|limitations?))\b",
    ),
    _rule(
        "reveal_prompt",
        rf"\b{_TELLS} <3>your <3>(?:{_PROMPT}|{_OWN}|instructions|configuration)",
        rf"\b{_SHOWS} (?:me |us |to me |back |out )?<1>your <1>{_INNER}",
        rf"\b{_SHOWS} (?:me|us) (?:all |exactly |what )?(?:of )?your <1>(?:{_PROMPT}|{_OWN}|"
        r"instructions|configuration)",
        rf"\b{_SHOWS_ANY} (?:me |us |to me |back |out )?<1>your <1>{_ALONE}",
        rf"\b{_SHOWS_ANY} (?:me |us )?(?:the |its |any |all )?(?:system|hidden|secret|internal) "
        r"(?:prompts?|instructions)\b",
        r"\[(?:admin|administrator|debug|system|internal|root|developer|override)(?:[\x20_-](?:note|"
        r"mode|override|command|message))?\s{0,2}:\s{0,2}(?:reveal|show|output|print|display|"
        r"share|bypass|ignore|disable|dump|expose|disclose)\b",
        r"\b(?:system |full |complete |hidden |entire )prompt (?:disclosure|extraction|reveal|"
        r"dump|leak)\b",
        rf"\byour (?:{_PROMPT}|{_INNER}|instructions) (?:should|must|needs? to|has to|have to|"
        r"will|can|shall) (?:now )?be (?:revealed|disclosed|shown|displayed|shared|printed|told)\b",
    ),
    _rule(
        "no_limits",
        r"\b(?:respond|answer|reply|help|assist|comply|function|operate|behave|act|speak|talk|"
        r"continue|generate|write|proceed|you are|as an? ai|assistant|chatbot|model|version of "
        r"(?:you|yourself)) <5>(?:without|with no|free (?:of|from)|lacking|before) "
        rf"<2>(?:{_SAFETY}|(?:your |any |ai |all |those |these )(?:restrictions|guidelines|"
        r"limitations|filters|constraints|safeguards|guardrails|alignment)\b|(?:corporate "
        r")?(?:censorship|sanitization))",
        r"\b(?:unrestricted|unfiltered|uncensored|jailbroken|unaligned|unshackled) (?:ai|"
        r"assistants?|chatbots?|version|mode|language model|llm|responses?|persona|self|gpt)\b",
    ),
)
