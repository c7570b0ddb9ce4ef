"""What attacks on a model say in so many words, by the trick they play.

A rule is here because its words have hardly another use; what can be said innocently is the model's
to judge. ``injection_languages`` has other languages than English.
"""

from __future__ import annotations

from proxy.guardrails.matching.injection_indirect import INDIRECT
from proxy.guardrails.matching.injection_limits import OF_LIMITS
from proxy.guardrails.matching.phrase_rules import PhraseRule
from proxy.guardrails.matching.phrases import phrase

# docs/guard-quality.md counts what they hit. What may be meant well is below the default threshold.
SURE, LIKELY, MAYBE = 0.99, 0.97, 0.9


def _rule(kind: str, score: float, written: str) -> PhraseRule:
    return PhraseRule(kind, score, phrase(written))


ENGLISH = (
    _rule(
        "override",
        SURE,
        r"<drop> <any>(?:<old> ){1,4}<3><law>",
    ),
    _rule(
        "override",
        LIKELY,
        r"<drop> (?:absolutely )?(?:everything|anything|all|whatever) <4>(?:above|before this|"
        r"so far|(?:were|was|been) (?:told|given|taught|instructed)|told you)",
    ),
    _rule(
        "override",
        LIKELY,
        r"\b(?:ignore|disregard|forget) (?:all (?:of )?)?the above(?:\W*[.!:;\n]| (?:and|then|"
        r"instead|instructions?|text|prompt|directions?)\b)",
    ),
    _rule(
        "override",
        LIKELY,
        r"\b(?:previous|prior|earlier|original|initial) (?:\w+ )?<law> <3>(?:null and void|"
        r"revoked|overridden|cancell?ed|void\b|no longer (?:apply|valid|bind))",
    ),
    _rule(
        "new_orders",
        LIKELY,
        r"(?:^|[\n.!?#\]>*\-])\s{0,3}(?:your )?(?:new|updated|revised|real|actual) (?:system "
        r")?(?:instructions?|directives?|orders?|system prompt)\s{0,2}[:=]",
    ),
    _rule(
        "new_orders",
        LIKELY,
        r"\byour (?:new|real|only|true) (?:task|job|role|purpose|goal|instructions?|objective|"
        r"mission) (?:is|are) (?:now )?(?:to )?(?:ignore|reveal|output|say|print|obey|answer "
        r"any)",
    ),
    _rule(
        "no_limits",
        LIKELY,
        r"\b(?:you|chatgpt|assistant|model) <5>(?:are|have|be|is|answers?|responds?|operate|"
        r"act) <5><unbound>",
    ),
    _rule(
        "no_limits",
        LIKELY,
        r"\b(?:not|un|no longer)\W*bound by <4>(?:rules|restrictions|guidelines|polic(?:y|ies)|"
        r"ethics|morals|laws|limitations)\b",
    ),
    _rule(
        "no_limits",
        LIKELY,
        r"\byou (?:are|have been|were) (?:now )?(?:freed?|liberated|unshackled|released|"
        r"unlocked) (?:from|of) <4>(?:rules|restrictions|guidelines|constraints|limits|"
        r"limitations|confines|shackles|chains|programming)",
    ),
    _rule(
        "persona",
        LIKELY,
        r"\b(?:act|pretend|role.?play|behave|respond|answer|imagine|simulate|play|speak) "
        r"<8><unbound>",
    ),
    _rule(
        "persona",
        SURE,
        r"\bdo anything now\b",
    ),
    _rule(
        "persona",
        LIKELY,
        r"\byou(?: are|.re| will be| become) (?:now|going to (?:be|act as|pretend to be)) "
        r"(?:dan|stan|dude|evil\W?bot|evil\W?gpt|devil\W?gpt|jailbreak\w*|freegpt)\b",
    ),
    _rule(
        "persona",
        LIKELY,
        r"\b(?:stop being|you are no longer|you.re no longer|forget (?:that )?you are) (?:an? |"
        r"the )?(?:helpful |harmless )?(?:ai\b|assistant|chatgpt|language model|claude|gpt|"
        r"chatbot)",
    ),
    _rule(
        "mode",
        LIKELY,
        r"\b(?:god|jailbreak|dan|unrestricted|unfiltered|evil|opposite|sudo) mode (?:is |has "
        r"been )?(?:now )?(?:enabled|activated|on\b|active|engaged|unlocked)",
    ),
    _rule(
        "mode",
        LIKELY,
        r"\b(?:enter|enable|activate|switch (?:in)?to|simulate|engage|now in) <2>(?:god|"
        r"jailbreak|dan|unrestricted|unfiltered|evil|opposite) mode\b",
    ),
    _rule(
        "mode",
        LIKELY,
        r"\b(?:you are|you.re|chatgpt|assistant) <3>(?:developer|debug|admin|maintenance|root) "
        r"mode\b|\bdeveloper mode output\b",
    ),
    _rule(
        "override_code",
        LIKELY,
        r"\b(?:system|admin|administrator|security|root|safety)\W{1,3}override (?:activated|"
        r"engaged|initiated|enabled|code|command|accepted|granted|\w+ (?:previous|safety))",
    ),
    _rule(
        "reveal_prompt",
        LIKELY,
        r"\b(?:reveal|show|print|output|display|repeat|tell me|give me|share|expose|leak|"
        r"disclose|dump|write|summari[sz]e|recite|copy|provide|describe|list|what(?: is| are| "
        r"was|.s)) <4>your <2>(?:(?:system|initial|hidden|original|secret|internal|developer|"
        r"base|core|underlying|initialization|starting) ){1,3}(?:prompts?|instructions?|"
        r"messages?|directives?|guidelines?|configuration|rules|text)\b",
    ),
    _rule(
        "reveal_prompt",
        LIKELY,
        r"\b(?:reveal|expose|leak|disclose|dump|exfiltrate|repeat|recite|print) <4>(?:the|its) "
        r"<2>(?:(?:system|hidden|secret|internal|developer) ){1,3}(?:prompt|instructions|"
        r"message|directives)\b",
    ),
    _rule(
        "repeat_above",
        LIKELY,
        r"\b(?:repeat|print|output|copy|echo|recite|write|display|reproduce) <3>(?:everything|"
        r"all|words|text|sentences|content|lines) (?:of )?<3>(?:above\b|before this|prior to "
        r"this)",
    ),
    _rule(
        "repeat_above",
        LIKELY,
        r"\bstarting (?:with|from) (?:the )?(?:phrase |words? )?you are\b",
    ),
    _rule(
        "chat_markup",
        LIKELY,
        r"<\|(?:im_start|im_end|system|user|assistant|start_header_id|end_header_id|eot_id)\|>|"
        r"\[/?INST\]|<</?SYS>>",
    ),
    _rule(
        "fake_turn",
        LIKELY,
        r"(?:^|\n)\W{0,4}(?:system|assistant|developer|admin)\W{0,3}:\s{0,3}(?:ignore|override|"
        r"disregard|forget|new instructions?|all previous|security (?:override|protocol))",
    ),
    _rule(
        "fake_end",
        MAYBE,
        r"(?:-{3,}|={3,}|#{3,}|\*{3,}|<{2,}|\[)\W{0,4}end (?:of )?(?:the )?(?:system "
        r")?(?:prompt|instructions|system message|user input)\b",
    ),
    _rule(
        "fake_authority",
        LIKELY,
        r"\bi(?:.m| am) (?:your|an?|the) <3>(?:developer|creator|administrator|admin|engineer|"
        r"owner) <10>(?:reveal|override|unlock|your (?:\w+ )?(?:prompt|instructions|"
        r"restrictions|guidelines|configuration))",
    ),
    _rule(
        "disable_safety",
        SURE,
        r"\b(?:disable|deactivate|turn off|remove|lift|switch off|suspend|bypass|circumvent|"
        r"drop|unlock|break) (?:all |any )?(?:of )?your <3>(?:filters?|restrictions?|safety|"
        r"safeguards?|guardrails?|limitations?|censorship|guidelines|constraints|moderation|"
        r"ethic\w*|protocols?)\b",
    ),
    _rule(
        "no_refusal",
        LIKELY,
        r"\b(?:never|must not|cannot|can not|can.t|may not|not allowed to|do not|without) <2>"
        r"(?:refuse|refusing|refusals?|decline) <3>(?:any|my|requests?|answer\w*|orders?|"
        r"commands?|anything|me)\b",
    ),
    _rule(
        "two_answers",
        LIKELY,
        r"\[\W{0,3}(?:classic|jailbreak|unfiltered|developer mode(?: output)?)\W{0,3}\]|"
        r"\x{1F513}\W{0,3}(?:jailbreak|developer)|\(\x{1F513}",
    ),
    _rule(
        "token_game",
        MAYBE,
        r"\b(?:lose|deduct|subtract|deducted|losing) <4>tokens\b",
    ),
    _rule(
        "hidden_comment",
        LIKELY,
        r"<!--[^>]{0,80}\b(?:ignore|disregard|override|ai (?:assistant|agent|model)s?|llms?|"
        r"system prompt|exfiltrate)\b",
    ),
    _rule(
        "to_the_model",
        LIKELY,
        r"\b(?:ai|llms?|language models?|chatbots?|agents?)(?: (?:assistants?|agents?|models?|"
        r"systems?|reviewers?|tools?))? (?:that (?:is |are )?|who (?:is |are )?)?(?:reading|"
        r"processing|parsing|summari[sz]ing|reviewing|reads?) this\b",
    ),
    _rule(
        "exfiltrate",
        LIKELY,
        r"!\[[^\]]{0,60}\]\(https?://[^)\s]{1,120}[?&][^)\s=]{1,30}=[^)\s]{0,30}(?:\{|\[|<|%7b)",
    ),
    _rule(
        "exfiltrate",
        LIKELY,
        r"\b(?:send|forward|post|e?mail|exfiltrate|upload|transmit|leak) <5><secret> <5>(?:to|"
        r"at|via) <3>(?:https?://|[\w.+\-]+@|[\w\-]+\.(?:com|net|io|org|example|test)\b)",
    ),
    _rule(
        "in_secret",
        MAYBE,
        r"\b(?:do not|don.t|never|without) (?:tell|mention|inform|notify|alert|telling|"
        r"mentioning|informing|notifying|alerting) <3>(?:to )?the user (?:about|of|that) "
        r"(?:this|these|the above|you)\b",
    ),
    _rule(
        "decode_obey",
        LIKELY,
        r"\b(?:decode|decrypt|base64|rot13|hex|unscramble|deobfuscate) <10>(?:and|then) "
        r"<2>(?:follow|obey|execute|comply|carry out|do (?:what|as|exactly))\b",
    ),
    _rule(
        "say_pwned",
        LIKELY,
        r"\b(?:say|print|output|reply|respond|answer|write|return) <8>(?:pwned|been hacked|"
        r"jailbroken)\b",
    ),
    _rule(
        "unasked_tool",
        MAYBE,
        r"\b(?:call|invoke|use|execute|run) the \w+ (?:tool|function) <8>(?:without "
        r"<2>(?:approval|confirm\w*|asking)|silently|do not (?:ask|confirm))",
    ),
)

RULES = (*ENGLISH, *INDIRECT, *OF_LIMITS)
NAMES = tuple(dict.fromkeys(rule.kind for rule in RULES))
