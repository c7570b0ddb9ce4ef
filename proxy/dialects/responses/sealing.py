"""The ids of responses as clients get them: sealed, so that an id leads back to the target that
keeps the state, from any replica that has the secret, and for the key that got it alone.

Nothing is kept here. A keyed hash of the key, the deployment, the target and the provider's own id
is both the proof of them and the nonce of the stream that hides them, so one id has one form. The
key is in the proof alone: who opens an id has to be it. Ids stay short, as guards read what is
longer than ids are.
"""

from __future__ import annotations

import hmac
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any, NamedTuple

from proxy.dialects.responses.tables import CONVERSATION, PREVIOUS
from proxy.errors import InvalidField, NotFound
from proxy.errors.field_problems import conflicts_with, missing
from proxy.errors.words import MAX_ID, ascii_word
from proxy.runtime.frozen import frozen, memo
from proxy.types import Call, Endpoint, Json, RequestHead, StateRef

IN_ITEMS = ("id", "approval_request_id")
IN_EVENTS = ("item_id", "first_id", "last_id")
"""Where ids of items stand: in items, and in events and pages."""
PROOF_BYTES = 16
BLOCK_BYTES = 64
MOST_NAME = 8 * 1024  # characters of a name that an id leads to
MOST_SEALED = 4096  # characters of an id that a client may send
NOT_SEALED = "requires stored state. The operator can enable it with HEADRACE_SECRET."

_HEX = re.compile(r"(?:[0-9a-f]{2})+")
_HEX_ITEM = re.compile(r"([a-z]{1,8})_((?:[0-9a-f]{2})+)")
_SEALED = re.compile(r"[A-Za-z0-9_-]{24,}")
_SEALED_ITEM = re.compile(r"([a-z]{1,8}_)([A-Za-z0-9_-]{24,})")
_OF_ITEM = re.compile(r"[a-z]{1,8}_")
_OF_PROVIDERS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:=-]{0,1023}")
"""The ids that are sealed. Any other passes as it came, and nothing can lean on it."""


@frozen
class SealSecret:
    """One secret: what proves by it, and what hides by it, have keys of their own."""

    proves: bytes
    hides: bytes

    @classmethod
    def of(cls, text: str) -> SealSecret:
        """Make it out of a configured text of any length."""
        made = [
            blake2b(text.encode("utf-8", "surrogateescape"), digest_size=32, person=use).digest()
            for use in (b"headrace id mac", b"headrace id hide")
        ]
        return cls(*made)

    def seal(self, key: str, plain: bytes) -> bytes:
        proof = self._proof(key, plain)
        return proof + self._hidden(proof, plain)

    def open(self, key: str, sealed: bytes) -> bytes | None:
        """Return what was sealed; None for anything that this secret has not sealed for a key."""
        proof = sealed[:PROOF_BYTES]
        plain = self._hidden(proof, sealed[PROOF_BYTES:])
        return plain if hmac.compare_digest(proof, self._proof(key, plain)) else None

    def _proof(self, key: str, plain: bytes) -> bytes:
        whole = _packed(key) + plain
        return blake2b(whole, digest_size=PROOF_BYTES, key=self.proves).digest()

    def _hidden(self, nonce: bytes, text: bytes) -> bytes:
        """Return a text hidden by the stream of a nonce, or a hidden one as it was."""
        blocks = [
            blake2b(nonce + at.to_bytes(4), digest_size=BLOCK_BYTES, key=self.hides).digest()
            for at in range(-(-len(text) // BLOCK_BYTES))
        ]
        stream = int.from_bytes(b"".join(blocks)[: len(text)])
        return (int.from_bytes(text) ^ stream).to_bytes(len(text))


class StateKind(NamedTuple):
    """A kind of state: the ``prefix`` of its ids as clients get them, and what an id that is
    shortened begins with, one of digits in hex or any other. No two kinds share those, so that an
    id is of its kind alone."""

    prefix: str
    of_hex: bytes
    of_any: bytes

    def shorten(self, own: str) -> bytes:
        """Return an id in fewer bytes where it is of digits in hex, as OpenAI's are."""
        digits = own.removeprefix(self.prefix)
        if digits != own and _HEX.fullmatch(digits):
            return self.of_hex + bytes.fromhex(digits)
        return self.of_any + own.encode("ascii")

    def lengthen(self, raw: bytes) -> str | None:
        """Return the id that was shortened; None for one of another kind."""
        if raw[:1] == self.of_hex:
            return self.prefix + raw[1:].hex()
        return raw[1:].decode("ascii") if raw[:1] == self.of_any else None


RESPONSES = StateKind("resp_", b"h", b"i")
CONVERSATIONS = StateKind("conv_", b"c", b"d")


@frozen
class ResponseIds:
    """Seals and opens ids by ``secrets``: the first one seals, all of them open."""

    secrets: tuple[SealSecret, ...]

    @classmethod
    def of(cls, texts: Sequence[str]) -> ResponseIds:
        """Return what seals by the first of some secrets."""
        return cls(tuple(map(SealSecret.of, texts)))

    def seal(
        self, key: str, deployment: str, target: str, own: str, kind: StateKind = RESPONSES
    ) -> str:
        """Return a provider's id as the client of a key gets it. ``target`` is the title of one, or
        the name of an upstream."""
        return self._sealed(kind.prefix, kind.shorten, (key, deployment, target), own)

    def seal_item(self, key: str, deployment: str, target: str, own: str) -> str:
        """Return a provider's id of an item as the client of a key gets it: its kind shows."""
        return self._sealed(kind_of_item(own), _shortened_item, (key, deployment, target), own)

    def _sealed(
        self, prefix: str, shorten: Callable[[str], bytes], place: tuple[str, str, str], own: str
    ) -> str:
        if not _OF_PROVIDERS.fullmatch(own) or max(map(len, place)) > MOST_NAME:
            return own
        key, deployment, target = place
        sealed = self.secrets[0].seal(key, _packed(deployment) + _packed(target) + shorten(own))
        text = prefix + urlsafe_b64encode(sealed).decode().rstrip("=")
        return text if len(text) <= MOST_SEALED else own

    def open(self, text: str, key: str, kind: StateKind = RESPONSES) -> StateRef | None:
        """Return what an id of a key leads to; None for one that was not given to this key."""
        sealed = text.removeprefix(kind.prefix)
        if len(text) > MOST_SEALED or sealed == text or not _SEALED.fullmatch(sealed):
            return None
        opened = self._opened(sealed, key)
        own = None if opened is None else kind.lengthen(opened[2])
        if opened is None or own is None:
            return None
        return StateRef(
            client_id=text,
            deployment=opened[0],
            target=opened[1],
            id=own,
            is_conversation=kind is CONVERSATIONS,
        )

    def open_item(self, text: str, key: str) -> StateRef | None:
        """Return what the id of an item of a key leads to; None for one that was not given to this
        key."""
        match = None if len(text) > MOST_SEALED else _SEALED_ITEM.fullmatch(text)
        opened = None if match is None else self._opened(match[2], key)
        if match is None or opened is None or opened[2][:1] not in _OF_ITEMS:
            return None
        deployment, target, short = opened
        own = _lengthened_item(short)
        if kind_of_item(own) != match[1]:
            return None
        return StateRef(client_id=text, deployment=deployment, target=target, id=own)

    def _opened(self, text: str, key: str) -> tuple[str, str, bytes] | None:
        """Return the deployment, the target and the own id, shortened, that are sealed in a text of
        base64."""
        sealed = _decoded(text)
        if sealed is None:
            return None
        for secret in self.secrets:
            plain = secret.open(key, sealed)
            if plain is not None:
                deployment, rest = _unpacked(plain)
                return deployment, *_unpacked(rest)
        return None


def _packed(name: str) -> bytes:
    """Return a name behind its length, so that no two names are written like two others."""
    raw = name.encode("utf-8", "surrogatepass")
    return len(raw).to_bytes(2) + raw


def _unpacked(raw: bytes) -> tuple[str, bytes]:
    """Return the name that bytes begin with, and those behind it."""
    end = 2 + int.from_bytes(raw[:2])
    return raw[2:end].decode("utf-8", "surrogatepass"), raw[end:]


_OF_ITEMS = (b"p", b"x")
"""What the shortened id of an item begins with, and that of no state."""


def kind_of_item(own: str) -> str:
    """Return what the id of an item begins with, by which clients tell items apart."""
    match = _OF_ITEM.match(own)
    return "item_" if match is None else match[0]


def _shortened_item(own: str) -> bytes:
    """Return the id of an item in fewer bytes where it is of digits in hex."""
    match = _HEX_ITEM.fullmatch(own)
    if match is None:
        return b"p" + own.encode("ascii")
    return b"x" + match[1].encode("ascii") + b"_" + bytes.fromhex(match[2])


def _lengthened_item(raw: bytes) -> str:
    if raw[:1] == b"p":
        return raw[1:].decode("ascii")
    kind, _, digits = raw[1:].partition(b"_")
    return f"{kind.decode('ascii')}_{digits.hex()}"


def _decoded(text: str) -> bytes | None:
    """Return the bytes of base64 without its padding; None where others spell the same bytes."""
    try:
        raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (Error, ValueError):
        return None
    return raw if urlsafe_b64encode(raw).decode().rstrip("=") == text else None


@frozen
class AnswerIds:
    """Puts sealed ids into the answers of one target to one key. ``pin`` is that of the call: its
    id keeps the form in which the client has it. ``upstream`` is that of the target, by which ids
    of conversations are sealed."""

    ids: ResponseIds
    key: str
    deployment: str
    target: str
    pin: StateRef | None = None
    upstream: str = ""
    known: dict[str, str] = memo(dict)

    def sealed(self, document: Json) -> Json | None:
        """Return a document, or an event, with sealed ids; None where no id stands in it."""
        response = document.get("response")
        if isinstance(response, dict):
            made = self._of(response)
            return None if made is None else {**document, "response": made}
        if "output" in document or "deleted" in document:
            return self._of(document)
        return self.page(document)

    def conversation(self, own: str) -> str:
        """Return the sealed id of a conversation."""
        if self.pin is not None and own == self.pin.id:
            return self.pin.client_id
        return self.ids.seal(self.key, self.deployment, self.upstream, own, CONVERSATIONS)

    def _of(self, response: Json) -> Json | None:
        found = {name: response.get(name) for name in ("id", PREVIOUS)}
        made: Json = {name: self._form(own) for name, own in found.items() if isinstance(own, str)}
        output = response.get("output")
        if isinstance(output, list) and (items := self._items(output)) is not output:
            made["output"] = items
        talk = response.get(CONVERSATION)
        if isinstance(talk, dict) and isinstance(talk.get("id"), str):
            made[CONVERSATION] = {**talk, "id": self.conversation(talk["id"])}
        elif isinstance(talk, str):
            made[CONVERSATION] = self.conversation(talk)
        return {**response, **made} if made else None

    def page(self, document: Json) -> Json | None:
        """Return an event of an item, or a page of items, with sealed ids; None where none stands
        in it."""
        made = self._named(document, IN_EVENTS)
        if isinstance(document.get("item"), dict):
            made["item"] = self.item(document["item"])
        if isinstance(document.get("data"), list):
            made["data"] = self._items(document["data"])
        is_same = all(value is document[name] for name, value in made.items())
        return None if is_same else {**document, **made}

    def _items(self, items: list[Any]) -> list[Any]:
        made = [self.item(item) if isinstance(item, dict) else item for item in items]
        return made if any(a is not b for a, b in zip(made, items, strict=True)) else items

    def item(self, item: Json) -> Json:
        """Return an item with sealed ids."""
        named = self._named(item, IN_ITEMS)
        return {**item, **named} if named else item

    def _named(self, within: Json, names: tuple[str, ...]) -> Json:
        """Return the ids that stand under some names, sealed: each once, as each event of an item
        has its id."""
        made: Json = {}
        for name in names:
            own = within.get(name)
            if own and isinstance(own, str):
                sealed = self.known.get(own)
                if sealed is None:
                    place = self.key, self.deployment, self.target
                    sealed = self.known[own] = self.ids.seal_item(*place, own)
                made[name] = sealed
        return made

    def _form(self, own: str) -> str:
        if self.pin is not None and own and own == self.pin.id:
            return self.pin.client_id
        return self.ids.seal(self.key, self.deployment, self.target, own)


def pinned(call: Call, ids: ResponseIds | None) -> Call:
    """Return a call with the place of the state that it leans on, or is about, in place of the id
    in its body or path. Raises ``InvalidField`` without a secret, and ``NotFound`` for an id that
    was not given to the very key that calls."""
    head = call.head
    is_stored = head.endpoint == "stored"
    given: Any = head.parameter("id") if is_stored else call.body[PREVIOUS]
    if ids is None:
        raise InvalidField(param_of(head), NOT_SEALED)
    pin = ids.open(given, call.scheduling_key)
    if pin is None:
        raise unknown_id(head, given)
    if is_stored:  # policy decides by the very target, which any title of a deployment names
        return replace(
            call, requested_models=(pin.target,), deployment=pin.deployment, state_ref=pin
        )
    body = {name: value for name, value in call.body.items() if name != PREVIOUS}
    return at_pin(replace(call, body=body), pin)


def in_conversation(call: Call, ids: ResponseIds | None) -> Call:
    """Return a call with the place of the conversation that it goes on with, in place of its id in
    the body. Raises ``InvalidField``, and ``NotFound`` as ``pinned`` does."""
    if call.body.get(PREVIOUS) is not None:
        raise InvalidField(CONVERSATION, conflicts_with(PREVIOUS))
    asked = call.body[CONVERSATION]
    given = asked.get("id") if isinstance(asked, dict) else asked
    if not isinstance(given, str):
        raise InvalidField(f"{CONVERSATION}.id", missing("a string"))
    if ids is None:
        raise InvalidField(CONVERSATION, NOT_SEALED)
    pin = ids.open(given, call.scheduling_key, CONVERSATIONS)
    if pin is None:
        raise unknown_id(call.head, given, CONVERSATION)
    body = {name: value for name, value in call.body.items() if name != CONVERSATION}
    return at_pin(replace(call, body=body), replace(pin, param=CONVERSATION))


def at_pin(call: Call, pin: StateRef) -> Call:
    """Return a call that goes to the place of a pin: to its deployment where it names none."""
    named = call.deployment if call.head.deployment or call.deployment else pin.deployment
    return replace(call, state_ref=pin, deployment=named)


NAMES: Mapping[Endpoint, tuple[str, str]] = {
    "stored": ("response_id", "Response"),
    "conversations": ("conversation_id", "Conversation"),
}
"""By endpoint of a call about what is kept: the name under which it says an id, and what of."""


def param_of(head: RequestHead) -> str:
    """Return the name under which a call says an id."""
    return NAMES.get(head.endpoint, (PREVIOUS, ""))[0]


def unknown_id(head: RequestHead, text: str, param: str | None = None) -> NotFound:
    """Return the error for an id that leads nowhere: the same words whatever the reason. ``param``
    is where that of an item or a conversation stands."""
    what = NAMES.get(head.endpoint, ("", "Previous response"))[1]
    if param is not None:
        what = "Conversation" if param == CONVERSATION else "Item"
    message = f"{what} with id '{ascii_word(text, MAX_ID)}' not found."
    if param is None and head.endpoint == "responses":
        message += where_unkept(text, RESPONSES.prefix)
    return NotFound(message, param=param or param_of(head))


def where_unkept(text: str, prefix: str) -> str:
    """Return a hint for the id of a response that no provider stores, because it lacks a prefix."""
    if not text or text.startswith(prefix):
        return ""
    return (
        f" Responses whose id does not begin with {prefix} are not stored. Send the whole "
        "conversation in input instead."
    )
