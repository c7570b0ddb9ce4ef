"""Creates virtual keys: a secret for the client, and YAML lines with its digest."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection, Sequence

from proxy.policy.files.load import no_such


def draw(name: str, chosen: Sequence[str], known: Collection[str]) -> tuple[str, str]:
    """Return the secret of a new key, and YAML lines with the chosen deployments, or all.

    Raise ``ValueError`` if a chosen deployment does not exist or there is none to choose.
    """
    for deployment in chosen:
        if deployment not in known:
            raise ValueError(no_such("deployment", deployment, known))
    if not known:
        raise ValueError("the policies have no deployment that a key could call. Add a deployment.")
    text = f"hr-{secrets.token_urlsafe(32)}"
    digest = hashlib.sha256(text.encode()).hexdigest()
    deployments = ", ".join(dict.fromkeys(chosen or known))
    return text, f"keys:\n  {name}: {{sha256: {digest}, deployments: [{deployments}]}}"
