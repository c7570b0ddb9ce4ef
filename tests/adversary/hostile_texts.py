"""Texts that take long to read, repeated to any length. Readers must take linear time for each."""

from __future__ import annotations

HOSTILE_TEXTS: dict[str, str] = {
    "prose": "The quick brown fox jumps over the lazy dog, and nobody minds. ",
    "letters": "a",
    "spaces": " ",
    "lines": "\n",
    "marks in order": "a" + "\u0316" * 20 + "\u0315" * 20,
    "marks out of order": "\u0315\u0316",
    "one mark": "\u0301",
    "full width": "\uff46\uff55\uff4c\uff4c\u3000\uff57",
    "ligatures": "\ufdfa",
    "thai vowels": "\u0e33",
    "hangul": "한글",
    "ideographs": "日本語の文章です。",
    "emoji joined": "👩\u200d👩\u200d👧\u200d👦",
    "invisible": "\u200b\u2060\u00ad",
    "right to left": "\u202e\u202d",
    "look-alikes": "\u0430\u0435\u043e\u0440",
    "apart": "i g n o r e ",
    "braces": "{},",
    "brackets": "[[[[",
    "quotes": "'\"\\",
    "escapes": "\\u0061\\n",
    "percents": "%61%25",
    "entities": "&amp;&#97;",
    "digits": "4111 ",
    "digits together": "4242",
    "hex": "deadbeef0123",
    "base64": "aGVsbG8gd29ybGQh",
    "mail": "a@a.a@",
    "mail dots": "a.b.c.d-",
    "urls": "http://a.b/?c=",
    "url colons": "https://https://",
    "addresses": "1.2.3.4:",
    "keys": "AKIAIOSFODNN7",
    "key words": "api_key=",
    "pem": "-----BEGIN PRIVATE KEY-----\n",
    "placeholders": "[EMAIL_bcdf",
    "placeholder ends": "[EMAIL_bcdfghjkmnpq]",
    "data": "data:;base64,",
    "fences": "```py\n",
    "assignments": "x = f(y)\n",
    "orders": "ignore all previous instructions and ",
    "iban": "DE89 3704 0044 ",
    "phones": "+1 (555) 010-",
    "controls": "\x01\x02",
    "markup": "<a href=",
    "comments": "<!--",
    "stars": "**_",
    "sql": "' OR 1=1 --",
    "events": "data: \n\n",
    "null": "null,",
}


def repeat_text(name: str, size: int) -> str:
    """Return at most ``size`` characters of whole repetitions."""
    text = HOSTILE_TEXTS[name]
    return text * (size // len(text))
