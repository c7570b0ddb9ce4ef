"""What is asked and answered: chat calls of a wanted size, in sentences as people write them."""

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
LARGE = 64 * 1024  # what is longer than this is so by its many messages, each of some 8 KB
MESSAGE = 8 * 1024


def prose(length: int) -> str:
    """Return so many characters of sentences."""
    words = ""
    for sentence in cycle(SENTENCES):
        if len(words) >= length:
            break
        words += f"{sentence} "
    return words[:length]


def chat(
    size: int,
    *,
    model: str = "support-chat",
    stream: bool = False,
    seed: bool = False,
    plain: bool = False,
) -> bytes:
    """Return the JSON of a chat call of about ``size`` bytes, a ``plain`` one with one message and
    no parameters. With ``seed`` its end is left out: ``number`` writes it."""
    body: dict[str, object] = {"model": model, "messages": []}
    body |= {} if plain else {"temperature": 0.7, "max_tokens": 256, "top_p": 1, "user": "u-1"}
    body |= {"stream": True} if stream else {}
    first = [] if plain else [{"role": "system", "content": SYSTEM}]
    left = max(1, size - len(json.dumps({**body, "messages": first})) - 50)
    most = MESSAGE if left > LARGE else left
    texts = [prose(min(most, left - at)) for at in range(0, left, most)]
    roles = cycle(("user", "assistant"))
    messages = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)]
    body["messages"] = [*first, *messages]
    written = json.dumps(body, separators=(",", ":")).encode()
    return written[:-1] + b',"seed":' if seed else written


def number(seed: int) -> bytes:
    """Return the end of a call that no other has: always as long, and of 32 bits."""
    return b"%010d}" % (10**9 + seed)


def head(path: str, length: int, headers: dict[str, str]) -> bytes:
    """Return the head of a request."""
    fields = {
        "host": "bench",
        "content-type": "application/json",
        "authorization": f"Bearer {KEY}",
        **headers,
        "content-length": str(length),
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode()
