"""Keys that are known by their shape and that the rules of gitleaks leave out.

Each is what its maker's documentation or client shows: a prefix, the letters that may follow it and
how many. Group 1 of a pattern is the secret.
"""

from __future__ import annotations

from typing import NamedTuple

START = (
    r"(?:\b|\\[nrt])"  # a line end may be written as two letters, the second of which is a word's
)
END = r"(?:[^\w+=(-]|$)"  # what cannot be of a key; a parenthesis opens what a name is called with


class KeyShape(NamedTuple):
    """One kind of key; ``least_entropy`` are the bits a byte that a word would not have."""

    kind: str
    shape: str
    least_entropy: float = 3.0

    @property
    def pattern(self) -> str:
        return f"{START}({self.shape}){END}"


KEY_SHAPES = (
    KeyShape("openrouter-api-key", r"sk-or-v1-[0-9a-f]{64}"),
    KeyShape("replicate-api-token", r"r8_[A-Za-z0-9]{37}"),
    KeyShape("fireworks-api-key", r"fw_[A-Za-z0-9]{22,24}"),
    KeyShape("headrace-virtual-key", r"hr-[A-Za-z0-9_-]{43}"),
    KeyShape("telegram-bot-token", r"[0-9]{8,10}:AA[A-Za-z0-9_-]{33}"),
    KeyShape(
        "discord-webhook-url",
        r"https://(?:ptb\.|canary\.)?discord(?:app)?\.com/api/(?:v[0-9]{1,2}/)?webhooks"
        r"/[0-9]{17,20}/[\w-]{60,72}",
    ),
    KeyShape("new-relic-key", r"NR(?:AK|RA|IQ|JS|AA)-[A-Z0-9]{27}"),
    KeyShape("new-relic-license-key", r"[0-9a-f]{36}NRAL"),
    KeyShape("docker-hub-token", r"dckr_(?:pat|oat)_[A-Za-z0-9_-]{27,36}"),
    KeyShape("supabase-token", r"sb(?:p_(?:v0_)?[0-9a-f]{40}|_secret_[A-Za-z0-9_-]{31,40})"),
    KeyShape("airtable-token", r"pat[A-Za-z0-9]{14}\.[0-9a-f]{64}"),
    KeyShape("mailchimp-key", r"[0-9a-f]{32}-us[0-9]{1,2}"),
)
