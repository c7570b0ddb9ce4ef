"""Seals provider ids for clients of the Responses API.

A sealed id contains the deployment, the target and the provider's id, and opens only for the key
that received it, on each replica with the secret. A keyed hash authenticates an id and is the nonce
of its encryption, so an id has one form. Ids are short enough that guards do not read them.
"""

from __future__ import annotations

import hmac
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

from proxy.dialects.responses.schema import CONVERSATION, PREVIOUS_RESPONSE_ID
from proxy.runtime.frozen import empty_cache_field, frozen
from proxy.types import Json, StateRef

ITEM_MEMBERS = ("id", "approval_request_id")
EVENT_MEMBERS = ("item_id", "first_id", "last_id")
"""Members with ids of items: of items, and of events and pages."""
PROOF_BYTES = 16
BLOCK_BYTES = 64
MAX_NAME_LENGTH = 8 * 1024
MAX_SEALED_LENGTH = 4096

_HEX = re.compile(r"(?:[0-9a-f]{2})+")
_BASE64 = re.compile(r"[A-Za-z0-9_-]{24,}")
_ITEM_PREFIX = re.compile(r"[a-z]{1,8}_")
_PROVIDER_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:=-]{0,1023}")
"""The ids that are sealed. Others pass unchanged and cannot be referred to."""


@frozen
class SealSecret:
    """Two keys derived from a configured secret, for authentication and for encryption."""

    mac_key: bytes
    cipher_key: bytes

    @classmethod
    def derive(cls, text: str) -> SealSecret:
        """Derive the keys from a configured text."""
        secret = text.encode("utf-8", "surrogateescape")
        uses = b"headrace id mac", b"headrace id hide"
        return cls(*[blake2b(secret, digest_size=32, person=use).digest() for use in uses])

    def seal(self, key_name: str, plain: bytes) -> bytes:
        proof = self._compute_mac(key_name, plain)
        return proof + self._encrypt_or_decrypt(proof, plain)

    def open(self, key_name: str, sealed: bytes) -> bytes | None:
        """Return the decrypted bytes, None unless this secret sealed them for the virtual key."""
        proof = sealed[:PROOF_BYTES]
        plain = self._encrypt_or_decrypt(proof, sealed[PROOF_BYTES:])
        return plain if hmac.compare_digest(proof, self._compute_mac(key_name, plain)) else None

    def _compute_mac(self, key: str, plain: bytes) -> bytes:
        return blake2b(_pack_name(key) + plain, digest_size=PROOF_BYTES, key=self.mac_key).digest()

    def _encrypt_or_decrypt(self, nonce: bytes, text: bytes) -> bytes:
        blocks = [
            blake2b(nonce + n.to_bytes(4), digest_size=BLOCK_BYTES, key=self.cipher_key).digest()
            for n in range(-(-len(text) // BLOCK_BYTES))
        ]
        stream = int.from_bytes(b"".join(blocks)[: len(text)])
        return (int.from_bytes(text) ^ stream).to_bytes(len(text))


class StateKind(NamedTuple):
    """A kind of stored object: the prefix of its ids, and tags of packed ids.

    ``prefix`` is empty if it depends on the type of an item. ``hex_tag`` precedes a packed id of
    hexadecimal digits, which takes half the bytes; ``text_tag`` precedes any other id. Tags are
    unique, so an id can be opened only as its own kind.
    """

    prefix: str
    hex_tag: bytes
    text_tag: bytes

    def get_prefix(self, provider_id: str) -> str:
        """Return the prefix by which clients recognize the type of an object."""
        match = _ITEM_PREFIX.match(provider_id)
        return self.prefix or ("item_" if match is None else match[0])

    def pack_id(self, provider_id: str) -> bytes:
        prefix = self.get_prefix(provider_id)
        digits = provider_id.removeprefix(prefix)
        if digits != provider_id and _HEX.fullmatch(digits):
            item_prefix = b"" if self.prefix else prefix.encode("ascii")
            return self.hex_tag + item_prefix + bytes.fromhex(digits)
        return self.text_tag + provider_id.encode("ascii")

    def unpack_id(self, packed: bytes) -> str | None:
        """Return a packed id, None if it is of another kind."""
        tag, raw = packed[:1], packed[1:]
        if tag != self.hex_tag:
            return raw.decode("ascii") if tag == self.text_tag else None
        if self.prefix:
            return self.prefix + raw.hex()
        name, _, digits = raw.partition(b"_")
        return f"{name.decode('ascii')}_{digits.hex()}"


RESPONSES = StateKind("resp_", b"h", b"i")
CONVERSATIONS = StateKind("conv_", b"c", b"d")
ITEMS = StateKind("", b"x", b"p")


@frozen
class IdSealer:
    """Seals provider ids with the first of ``secrets``. Opens ids that any of them sealed."""

    secrets: tuple[SealSecret, ...]

    @classmethod
    def from_secrets(cls, texts: Sequence[str]) -> IdSealer:
        return cls(tuple(map(SealSecret.derive, texts)))

    def seal(
        self, key: str, deployment: str, target: str, provider_id: str, kind: StateKind = RESPONSES
    ) -> str:
        """Return a provider's id in sealed form for the virtual key with the name ``key``.

        ``target`` is the id of a target, or for a conversation the name of an upstream. An id that
        is malformed or becomes too long is returned unchanged.
        """
        is_long = max(len(key), len(deployment), len(target)) > MAX_NAME_LENGTH
        if is_long or not _PROVIDER_ID.fullmatch(provider_id):
            return provider_id
        plain = _pack_name(deployment) + _pack_name(target) + kind.pack_id(provider_id)
        sealed = self.secrets[0].seal(key, plain)
        text = kind.get_prefix(provider_id) + urlsafe_b64encode(sealed).decode().rstrip("=")
        return text if len(text) <= MAX_SEALED_LENGTH else provider_id

    def open(self, text: str, key_name: str, kind: StateKind = RESPONSES) -> StateRef | None:
        """Return the reference in a sealed id, None if it was not sealed for the key."""
        prefix = kind.get_prefix(text)
        contents = self._decrypt_id_parts(text, prefix, key_name)
        provider_id = None if contents is None else kind.unpack_id(contents[2])
        if contents is None or provider_id is None or kind.get_prefix(provider_id) != prefix:
            return None
        deployment, target, _ = contents
        return StateRef(
            client_id=text,
            deployment=deployment,
            target=target,
            id=provider_id,
            is_conversation=kind is CONVERSATIONS,
        )

    def _decrypt_id_parts(self, text: str, prefix: str, key: str) -> tuple[str, str, bytes] | None:
        encoded = text.removeprefix(prefix)
        if encoded == text or len(text) > MAX_SEALED_LENGTH or not _BASE64.fullmatch(encoded):
            return None
        try:
            sealed = urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
        except (Error, ValueError):
            return None
        if urlsafe_b64encode(sealed).decode().rstrip("=") != encoded:
            return None  # another encoding of the same bytes
        for secret in self.secrets:
            plain = secret.open(key, sealed)
            if plain is not None:
                deployment, tail = _unpack_name(plain)
                return deployment, *_unpack_name(tail)
        return None


def _pack_name(name: str) -> bytes:
    """Return a name with its length, so that a sequence of names is unambiguous."""
    raw = name.encode("utf-8", "surrogatepass")
    return len(raw).to_bytes(2) + raw


def _unpack_name(raw: bytes) -> tuple[str, bytes]:
    end = 2 + int.from_bytes(raw[:2])
    return raw[2:end].decode("utf-8", "surrogatepass"), raw[end:]


@frozen
class DocumentSealer:
    """Seals the ids in documents that one target returns to one key.

    ``upstream`` is the upstream of the target, for ids of conversations. The id in
    ``state_ref``, which the call uses, keeps the form that the client sent.
    """

    id_sealer: IdSealer
    key_name: str
    deployment: str
    target: str
    state_ref: StateRef | None = None
    upstream: str = ""
    sealed_items: dict[str, str] = empty_cache_field(dict)

    def seal(self, document: Json) -> Json | None:
        """Return a response, an event or a page with sealed ids, None if it has no id."""
        response = document.get("response")
        if isinstance(response, dict):
            sealed = self._seal_ids_of_response(response)
            return None if sealed is None else {**document, "response": sealed}
        if "output" in document or "deleted" in document:
            return self._seal_ids_of_response(document)
        return self._seal_page(document)

    def seal_conversation(self, document: Json) -> Json | None:
        """Return a conversation, an item of one or a page with sealed ids, None if unchanged."""
        if isinstance(document.get("data"), list):
            return self._seal_page(document)
        if "type" in document:
            return self._seal_item(document)
        provider_id = document.get("id")
        if not isinstance(provider_id, str):
            return None
        return {**document, "id": self._seal_id(provider_id, CONVERSATIONS)}

    def _seal_page(self, document: Json) -> Json | None:
        members = self._seal_id_members(document, EVENT_MEMBERS)
        if isinstance(document.get("item"), dict):
            members["item"] = self._seal_item(document["item"])
        if isinstance(document.get("data"), list):
            members["data"] = self._seal_items(document["data"])
        is_same = all(value is document[name] for name, value in members.items())
        return None if is_same else {**document, **members}

    def _seal_ids_of_response(self, response: Json) -> Json | None:
        members: Json = {}
        for name in ("id", PREVIOUS_RESPONSE_ID):
            provider_id = response.get(name)
            if isinstance(provider_id, str):
                members[name] = self._seal_id(provider_id)
        output = response.get("output")
        if isinstance(output, list) and (items := self._seal_items(output)) is not output:
            members["output"] = items
        conversation = response.get(CONVERSATION)
        if isinstance(conversation, dict) and isinstance(conversation.get("id"), str):
            sealed_id = self._seal_id(conversation["id"], CONVERSATIONS)
            members[CONVERSATION] = {**conversation, "id": sealed_id}
        elif isinstance(conversation, str):
            members[CONVERSATION] = self._seal_id(conversation, CONVERSATIONS)
        return {**response, **members} if members else None

    def _seal_id(self, provider_id: str, kind: StateKind = RESPONSES) -> str:
        ref = self.state_ref
        if ref is not None and kind is not ITEMS and provider_id and provider_id == ref.id:
            return ref.client_id
        target = self.upstream if kind is CONVERSATIONS else self.target
        return self.id_sealer.seal(self.key_name, self.deployment, target, provider_id, kind)

    def _seal_items(self, items: list[Any]) -> list[Any]:
        """Return items with sealed ids, the same list if nothing changes."""
        sealed = [self._seal_item(item) if isinstance(item, dict) else item for item in items]
        is_same = all(new is old for new, old in zip(sealed, items, strict=True))
        return items if is_same else sealed

    def _seal_item(self, item: Json) -> Json:
        members = self._seal_id_members(item, ITEM_MEMBERS)
        return {**item, **members} if members else item

    def _seal_id_members(self, document: Json, names: tuple[str, ...]) -> Json:
        """Return the members ``names`` with sealed item ids. Equal ids are sealed only once."""
        members: Json = {}
        for name in names:
            provider_id = document.get(name)
            if provider_id and isinstance(provider_id, str):
                if provider_id not in self.sealed_items:
                    self.sealed_items[provider_id] = self._seal_id(provider_id, ITEMS)
                members[name] = self.sealed_items[provider_id]
        return members
