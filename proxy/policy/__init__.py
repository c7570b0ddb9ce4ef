"""What policy says about a call. ``decide`` is pure: what serves calls is what explains them."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

from proxy.errors import BadField, NotFound, Unauthorized
from proxy.policy.snapshot import Deployment, Key, Snapshot
from proxy.types import Call, Door, Leg, Plan


@dataclass(frozen=True, slots=True)
class InForce:
    """A snapshot as the pipeline sees it."""

    snapshot: Snapshot

    def identify(self, door: Door) -> str:
        return identify(self.snapshot, door).name

    def decide(self, call: Call) -> Plan:
        return decide(self.snapshot, call)


def identify(snapshot: Snapshot, door: Door) -> Key:
    """Find the virtual key. Raises ``Unauthorized`` in the same words for none and a wrong one."""
    if door.credential is None:
        raise Unauthorized
    digest = hashlib.sha256(door.credential.reveal().encode("utf-8", "surrogateescape")).digest()
    key = snapshot.keys.get(digest)
    if key is None or not hmac.compare_digest(key.digest, digest):
        raise Unauthorized
    return key


def decide(snapshot: Snapshot, call: Call) -> Plan:
    """Say who calls, which deployment answers, with which tags and targets. Raises ``Refused``."""
    key = identify(snapshot, call.door)
    warnings: list[str] = []
    if call.door.refresh and not key.may_refresh:
        warnings.append("refresh ignored: this key may not refresh")
    plan = Plan(snapshot.revision, key.name, None, key.tags, ())
    if call.door.endpoint == "models":
        return replace(plan, listing=key.listing, warnings=tuple(warnings))
    deployment = _deployment(key, call)
    draw = partial(_draw, deployment, key, call)
    legs = tuple(Leg(model, deployment.attempts(model, draw)) for model in call.models)
    tags, dropped = _tags(snapshot, deployment, key, call.door)
    warnings.extend(f"tag {_shown(tag)} dropped" for tag in dropped)
    return replace(
        plan,
        deployment=deployment.name,
        tags=tags,
        legs=legs,
        dropped_tags=len(dropped),
        warnings=tuple(warnings),
    )


def _draw(deployment: Deployment, key: Key, call: Call) -> int:
    """Draw a number that decides by weight: the same for the same key or user where it is sticky,
    else new for each call. What a client sends cannot steer it, but for a user's own name."""
    seed = call.door.nonce
    if deployment.sticky == "key":
        seed = key.name
    elif deployment.sticky == "user":
        seed = str(call.door.user or call.body.get("user") or seed)
    said = f"{deployment.name}\0{seed}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(said, digest_size=16).digest())


def _deployment(key: Key, call: Call) -> Deployment:
    """The one that the call names, else the only one of the key that serves all its models."""
    asked = call.door.deployment or call.deployment
    if asked is not None:
        found = key.deployments.get(asked)
        if found is None:
            said = f"The deployment {_shown(asked)} does not exist, or this key may not use it."
            raise NotFound(said, param="deployment")
        return found
    candidates = key.named.get(call.models[0], ())
    for model in call.models[1:]:
        others = key.named.get(model, ())
        candidates = tuple(each for each in candidates if each in others)
    if len(candidates) == 1:
        return candidates[0]
    models = ", ".join(_shown(model) for model in call.models)
    if not candidates:
        together = " together" if len(call.models) > 1 else ""
        said = f"No deployment that this key may use serves {models}{together}."
        raise NotFound(said, param="model")
    names = ", ".join(sorted(each.name for each in candidates))
    raise BadField("model", f"{models} is served by {names}; name one in x-headrace-deployment")


def _tags(
    snapshot: Snapshot, deployment: Deployment, key: Key, door: Door
) -> tuple[Mapping[str, str], list[str]]:
    """Join the tags: the key's over the deployment's, then what a caller may add to them.

    Gives the set and the names of the caller's tags that had to be dropped.
    """
    tags = {**deployment.tags, **key.tags}
    dropped: list[str] = []
    for name, given in door.tags:
        value = "true" if given is None else given
        rule = snapshot.tags.get(name)
        allowed = rule is not None and rule.caller and rule.allows(value)
        if allowed and tags.get(name, value) == value:
            tags[name] = value
        elif snapshot.refuse_caller_tags:
            raise BadField("tags", f"{_shown(name)} is not allowed with this value")
        else:
            dropped.append(name)
    return MappingProxyType(dict(sorted(tags.items()))), dropped


def _shown(text: str) -> str:
    """Give a client's own word in a form that fits a message: short and printable."""
    return "".join(c if c.isascii() and c.isprintable() else "?" for c in text[:64])
