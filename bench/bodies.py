"""Chat requests of a given size, in natural English prose."""

from __future__ import annotations

import json
from itertools import cycle

KEY = "hr-bench-key"
SYSTEM = (
    "You help the customers of an online shop. Answer in at most four sentences, in the language"
    " of the question. Do not promise what the carrier has not confirmed, and hand over to a person"
    " when you are not sure."
)
SENTENCES = (
    "Hello, a fortnight ago I ordered a pair of running shoes in blue, and a rain jacket with it.",
    "The jacket is here and fits well, but nobody can tell me where the shoes are by now.",
    "Your page says that the parcel was handed over on Monday, and nothing has moved since then.",
    "On Friday I travel to a race in the mountains, so waiting any longer is not much use to me.",
    "Would you rather send a second pair, give the money back, or let me buy some in town?",
    "My neighbour had the same trouble in spring and was helped within a day, which was kind.",
    "If you need the number of the order, tell me which of the three on the paper it is.",
    "The last time I wrote, the answer came by letter, and a message would have been quicker.",
    "Please keep it short: I read this on a small screen, standing in a train that is too full.",
    "And one more thing, since I am writing anyway: does the jacket survive a washing machine?",
)
MAX_SINGLE_MESSAGE = 64 * 1024
MESSAGE_BYTES = 8 * 1024
"""Larger bodies consist of messages of this size."""


def prose(length: int) -> str:
    """Return ``length`` characters of sentences."""
    text = ""
    for sentence in cycle(SENTENCES):
        if len(text) >= length:
            break
        text += f"{sentence} "
    return text[:length]


def chat(
    size: int,
    *,
    model: str = "support-chat",
    stream: bool = False,
    seed: bool = False,
    plain: bool = False,
) -> bytes:
    """Return the JSON of a chat request of about ``size`` bytes.

    A ``plain`` request has one message and no parameters. With ``seed`` the JSON ends before the
    value of ``seed``, which ``number`` returns.
    """
    body: dict[str, object] = {"model": model, "messages": []}
    body |= {} if plain else {"temperature": 0.7, "max_tokens": 256, "top_p": 1, "user": "u-1"}
    body |= {"stream": True} if stream else {}
    system = [] if plain else [{"role": "system", "content": SYSTEM}]
    remaining = max(1, size - len(json.dumps({**body, "messages": system})) - 50)
    step = MESSAGE_BYTES if remaining > MAX_SINGLE_MESSAGE else remaining
    texts = [prose(min(step, remaining - start)) for start in range(0, remaining, step)]
    roles = cycle(("user", "assistant"))
    messages = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)]
    body["messages"] = [*system, *messages]
    document = json.dumps(body, separators=(",", ":")).encode()
    return document[:-1] + b',"seed":' if seed else document


def number(seed: int) -> bytes:
    """Return a unique end of a request, always of the same length. The number fits 32 bits."""
    return b"%010d}" % (10**9 + seed)


def head(path: str, length: int, headers: dict[str, str]) -> bytes:
    """Return the HTTP head of a POST request."""
    fields = {
        "host": "bench",
        "content-type": "application/json",
        "authorization": f"Bearer {KEY}",
        **headers,
        "content-length": str(length),
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode()
