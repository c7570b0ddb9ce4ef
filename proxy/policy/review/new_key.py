"""A new virtual key: the text to hand out, and the lines of YAML by which it is known."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection, Sequence


def draw(name: str, chosen: Sequence[str], known: Collection[str]) -> tuple[str, str]:
    """Return the text of a new key, and lines that a check lets pass: with the deployments that
    are chosen, or all that are known. Raise ``ValueError`` where there are none of them."""
    for deployment in chosen:
        if deployment not in known:
            raise ValueError(f"there is no deployment {deployment!r}")
    if not known:
        raise ValueError("there is no deployment yet that a key could call")
    text = f"hr-{secrets.token_urlsafe(32)}"
    digest = hashlib.sha256(text.encode()).hexdigest()
    deployments = ", ".join(dict.fromkeys(chosen or known))
    return text, f"keys:\n  {name}: {{sha256: {digest}, deployments: [{deployments}]}}"
