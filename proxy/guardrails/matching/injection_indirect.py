"""What attacks say in documents and results of tools: to whichever model will read them.

Orders alone are none: a manual is full of them. What gives these away is that they speak to a
model or for somebody, want to be first, or want what nobody would write into a document.
"""

from __future__ import annotations

from proxy.guardrails.matching.phrase_rules import PhraseRule
from proxy.guardrails.matching.phrases import phrase

LIKELY, MAYBE = 0.97, 0.9


def _rule(kind: str, score: float, written: str) -> PhraseRule:
    return PhraseRule(kind, score, phrase(written))


INDIRECT = (
    _rule(
        "to_the_model",
        LIKELY,
        r"\b(?:note|message|attention|important|notice|hello|hey|hi|dear|memo|warning|alert|"
        r"reminder) (?:to|for)? ?<2>(?:ai|llms?|(?:large )?language models?|chatbots?|"
        r"ai.?powered)(?: (?:assistants?|agents?|models?|systems?|bots?|reviewers?|"
        r"summari[sz]ers?))?\s{0,2}[:!]",
    ),
    _rule(
        "to_the_model",
        LIKELY,
        r"\bif you(?:.re| are) (?:reading this and (?:you )?are )?(?:an? |the )?(?:ai|llm|"
        r"large language model|language model|chatbot|artificial intelligence|gpt|"
        r"automated (?:agent|assistant|system|reviewer))(?: (?:assistant|agent|model|"
        r"language model|system|bot|reviewer))?(?: (?:reading|processing|summari[sz]ing|reviewing|"
        r"evaluating|analy[sz]ing)\b|\s{0,2}[,:]| (?:please|you must|you should|then|ignore|"
        r"include|add|respond|reply|say|do not)\b)",
    ),
    _rule(
        "to_the_model",
        LIKELY,
        r"\b(?:system|admin|administrator|security|developer|operator|override) (?:note|notice|"
        r"message|instructions?|directive|update|alert|command) (?:to|for) (?:all |any |"
        r"the )?(?:ai|assistants?|models?|llms?|agents?|chatbots?)\b",
    ),
    _rule(
        "instead_first",
        LIKELY,
        r"\bbefore you (?:can |may |will |should )?(?:solve|complete|do|answer|start|continue|"
        r"proceed with|finish|perform|respond to|help with|work on) <4>(?:task|request|question|"
        r"query)\b <10>(?:please |you must |you need to |first |have to )+<2>(?:do|perform|"
        r"complete|execute|send|call|run|follow|read|transfer|make)\b",
    ),
    _rule(
        "instead_first",
        LIKELY,
        r"\b(?:important |urgent )?message from <5>to you,? (?:the )?(?:gpt|chatgpt|claude|gemini|"
        r"llama|mistral|ai|assistant|model|agent)\b",
    ),
    _rule(
        "instead_first",
        LIKELY,
        r"\b(?:do not|don.t|stop|instead of|rather than) (?:answer|answering|summari[sz](?:e|ing)|"
        r"respond(?:ing)? to|complet(?:e|ing)|perform(?:ing)?|translat(?:e|ing)|follow(?:ing)?|"
        r"continu(?:e|ing)) <3>(?:user|original|previous|initial|above)(?:.s)? (?:question|"
        r"request|task|query|instructions?|prompt|text|document|email) <3>(?:but |and |instead |"
        r"just |only |simply )*(?:say|output|print|reply|respond|write|send|tell|return|answer|"
        r"call|execute)\b",
    ),
    _rule(
        "poisoned_tool",
        LIKELY,
        r"\b(?:read|open|cat|load|get|fetch|access|include|send|upload) <6>(?:~/|/etc/|/root/|"
        r"/home/\w{1,20}/)?\.?(?:ssh/|aws/|cursor/|config/)?(?:id_rsa|id_ed25519|mcp\.json|"
        r"\.env\b|authorized_keys|/etc/passwd|/etc/shadow|\.aws/credentials|credentials\.json|"
        r"\.netrc|\.bash_history) <10>(?:pass|send|include|append|provide|put|attach|post|upload|"
        r"forward|email)\b",
    ),
    _rule(
        "hidden_text",
        LIKELY,
        r"(?:display\s{0,2}:\s{0,2}none|visibility\s{0,2}:\s{0,2}hidden|"
        r"font-size\s{0,2}:\s{0,2}[01](?:px|pt)?\b|opacity\s{0,2}:\s{0,2}0\b|"
        r"color\s{0,2}:\s{0,2}(?:white|#fff(?:fff)?|"
        r"transparent)\b)[^<]{0,80}>[^<]{0,80}\b(?:ignore|disregard|ai (?:assistant|agent|"
        r"model)s?|llms?|system prompt|instructions?:)",
    ),
    _rule(
        "fake_turn",
        LIKELY,
        r"(?:[\[<{(]{1,2}|#{2,4}\s{0,2})/?(?:system|admin|assistant|developer|"
        r"sys)(?:[\x20_-](?:message|note|notice|instructions?|update|prompt|override|command|alert|"
        r"directive))?\s{0,2}(?:[\]>})]{1,2}|:)\W{0,6}<3>(?:ignore|disregard|forget|override|"
        r"new instructions?|you are now|from now on|the user (?:has|wants|is)|your new|"
        r"you must (?:now )?)\b",
    ),
    _rule(
        "fake_end",
        LIKELY,
        r"\bend (?:of )?(?:the )?(?:document|context|data|e-?mail|article|text|search results?|"
        r"tool (?:output|result|response)|user input|web ?page|untrusted \w+)\W{1,12}(?:new|real|"
        r"actual|updated|additional|system|now) <1>(?:instructions?|task|prompt|system|user|"
        r"assistant|ignore|you|do|send)\b",
    ),
    _rule(
        "praise_only",
        LIKELY,
        r"\b(?:give|write|provide|output|return|generate) <3>(?:only )?(?:an? )?(?:very |"
        r"strongly |highly )?(?:positive|favou?rable) (?:review|evaluation|assessment|"
        r"recommendation|rating)s? (?:only|and (?:do not|ignore|never))\b|\bdo not (?:highlight|"
        r"mention|list|report) any <1>(?:negatives?|weaknesses|flaws|shortcomings)\b",
    ),
    _rule(
        "exfiltrate",
        LIKELY,
        r"\b(?:append|add|include|embed|encode|put|insert|place) <6><secret> <5>(?:in|into|to|as|"
        r"of|on) <4>(?:url|link|query|image|parameter|src|address|request|webhook)\b",
    ),
    _rule(
        "exfiltrate",
        LIKELY,
        r"\b(?:curl|wget|fetch|requests\.(?:get|"
        r"post))\b[^\n]{0,60}https?://[^\s]{1,80}[^\n]{0,40}(?:\$\(|`|\|)[^\n]{0,20}(?:cat |env\b|"
        r"printenv|\.ssh|\.env|passwd|api_key|secret)",
    ),
    _rule(
        "exfiltrate",
        LIKELY,
        r"https?://[^\s]{1,100}[?&][^\s=]{1,20}=\s[^\n]{0,100}\bbase64\b|"
        r"\bbase64\b[^\n]{0,80}https?://[^\s]{1,100}[?&][^\s=]{1,20}=\s",
    ),
    _rule(
        "in_secret",
        LIKELY,
        r"\b(?:silently|secretly|covertly|quietly|without (?:telling|informing|notifying|alerting|"
        r"asking) the user) <2>(?:send|forward|exfiltrate|transfer|upload|delete|email|leak|"
        r"transmit|copy|share)\b <6>(?:to |at )?(?:https?|[\w.+\-]+@|attacker|external|all|every|"
        r"api|password|credentials|the user.s)",
    ),
    _rule(
        "in_secret",
        LIKELY,
        r"\b(?:send|forward|exfiltrate|transfer|upload|delete|email|transmit|share) <12>(?:do not|"
        r"don.t|never|without) (?:tell|telling|mention|mentioning|inform|informing|notify|"
        r"notifying|alert|alerting|reveal|asking|ask) <3>(?:to )?(?:the )?user\b",
    ),
    _rule(
        "fake_authority",
        MAYBE,
        r"\b(?:user|admin|administrator|operator|owner) has (?:already )?(?:pre.?)?(?:approved|"
        r"authori[sz]ed|consented to|confirmed|granted) <4>(?:action|transfer|operation|tool|call|"
        r"transaction|access|command|payment)s?\b",
    ),
    _rule(
        "fake_authority",
        LIKELY,
        r"\b(?:user|admin|administrator|operator|owner) has (?:already )?(?:pre.?)?(?:approved|"
        r"authori[sz]ed|consented to|confirmed) <8>(?:call|invoke|execute|run|"
        r"use) (?:the )?(?:\w+ tool|\w+ function|[a-z]+_[a-z_]+)\b",
    ),
    _rule(
        "exfiltrate",
        LIKELY,
        r"\b(?:send|forward|post|e?mail|exfiltrate|upload|transmit|leak)(?:_\w+)? (?:<4>(?:to|at|"
        r"via) )?<2>(?:https?://[^\s]{1,80}|[\w.+\-]+@[\w.\-]+) <4><secret>",
    ),
)
