"""Harmless texts: installed code and documentation, and generated mails and log lines."""

from __future__ import annotations

# ruff: noqa: E501  # log lines
import random
import string
import sysconfig
import uuid
from base64 import b64encode
from collections.abc import Iterator
from email.message import EmailMessage
from importlib.metadata import distributions
from pathlib import Path

CODE, PROSE, LOGS, MAILS = 2600, 900, 1000, 500
SIZE = 900  # characters of a text
HEX = "0123456789abcdef"
ALNUM = string.ascii_letters + string.digits

LOG_LINES = (
    "{ip} - - [10/Oct/2026:13:55:{n2} +0000] \"GET /v1/items/{uuid}?page={n3} HTTP/1.1\" 200 {n5}",
    "081109 2036{n2} 148 INFO dfs.DataNode$PacketResponder: PacketResponder 1 for block blk_-{n18} terminating",
    "nova-compute.log.1 2026-05-16 00:00:{n2}.500 2931 INFO nova.virt.libvirt [req-{uuid} {hex32} - - -] [instance: {uuid}] ok",
    "Dec 10 06:55:{n2} LabSZ sshd[{n5}]: Failed password for invalid user webmaster from {ip} port {n5} ssh2",
    "Dec 10 06:55:{n2} LabSZ sshd[{n5}]: Accepted publickey for ada from {ip} port {n5} ssh2: ED25519 SHA256:{b43}",
    "I1010 13:55:{n2}.{n6}       1 event.go:377] \"Started\" object=\"default/web-{hex10}-x2x7z\" reason=\"Pulled\"",
    "Pulled image registry.example/team/web:main-{hex40}@sha256:{hex64}",
    "time=2026-10-10T13:55:{n2}Z level=info msg=done trace_id={hex32} span_id={hex16} request_id=req_{a24}",
    "{{\"id\": \"chatcmpl-{a29}\", \"object\": \"chat.completion\", \"system_fingerprint\": \"fp_{hex10}\"}}",
    "tool call call_{a24} of message msg_01{a22} took {n3} ms",
    "WARN org.apache.kafka.clients.NetworkClient [Producer clientId=producer-{n2}] Node {n3} disconnected. ({n9})",
    "ETag: W/\"{b27}\" Cache-Control: max-age={n5} X-Amz-Cf-Id: {b56}==",
    "LOG:  duration: {n3}.{n3} ms  execute S_{n2}: SELECT id, token_count FROM usage_2026_10 WHERE key_id = $1",
    "npm notice integrity: sha512-{b86}== shasum: {hex40} webpack chunk-{hex20}.js",
    "Merge pull request #{n5} from team/fix-{n5}-handle-utf-8-in-x86_64-builds at {hex40}",
    "cookie: _ga=GA1.2.{n9}.{n9}; arn:aws:iam::{n12}:role/team-web-role i-0{hex16} subnet-{hex16}",
)  # fmt: skip


def harmless_texts() -> Iterator[tuple[str, str]]:
    """Yield 5,000 texts with their kind, the same ones on each machine with the same packages."""
    chance = random.Random(18)
    yield from (("code", text) for text in _pieces(_standard_library(), CODE))
    yield from (("prose", text) for text in _pieces(_descriptions(), PROSE))
    yield from (("log", _log(chance)) for _ in range(LOGS))
    yield from (("mail", _mail(chance)) for _ in range(MAILS))


def _standard_library() -> Iterator[str]:
    folder = Path(sysconfig.get_path("stdlib"))
    for file in sorted(folder.rglob("*.py")):
        if not {"site-packages", "test", "tests", "idle_test"} & {*file.relative_to(folder).parts}:
            yield file.read_text("utf-8", "replace")


def _descriptions() -> Iterator[str]:
    for distribution in sorted(distributions(), key=lambda each: each.metadata["Name"].lower()):
        yield distribution.read_text("METADATA") or ""
        yield distribution.read_text("RECORD") or ""


def _pieces(texts: Iterator[str], count: int) -> list[str]:
    """Return ``count`` pieces, spread evenly over the texts."""
    every = [piece for text in texts for piece in _at_lines(text)]
    return [every[number * len(every) // count] for number in range(count)]


def _at_lines(text: str) -> Iterator[str]:
    """Split a text at line ends."""
    piece = ""
    for line in text.splitlines(keepends=True):
        piece += line
        if len(piece) >= SIZE:
            yield piece
            piece = ""


def _draw(chance: random.Random, size: int, alphabet: str = ALNUM) -> str:
    return "".join(chance.choices(alphabet, k=size))


def _base64(chance: random.Random, size: int) -> str:
    return b64encode(chance.randbytes(size)).decode()[:size]


def _log(chance: random.Random) -> str:
    values = {"uuid": str(uuid.UUID(int=chance.getrandbits(128), version=4))}
    values["ip"] = ".".join(str(chance.randint(1, 250)) for _ in range(4))
    values |= {f"n{size}": _draw(chance, size, "0123456789") for size in (2, 3, 5, 6, 9, 12, 18)}
    values |= {f"hex{size}": _draw(chance, size, HEX) for size in (10, 16, 20, 32, 40, 64)}
    values |= {f"a{size}": _draw(chance, size) for size in (22, 24, 29)}
    values |= {f"b{size}": _base64(chance, size) for size in (27, 43, 56, 86)}
    return "\n".join(chance.choice(LOG_LINES).format(**values) for _ in range(8))


def _mail(chance: random.Random) -> str:
    mail = EmailMessage()
    mail["Received"] = f"from mx.example by mail.example with ESMTPS id {_draw(chance, 14)}"
    mail["DKIM-Signature"] = (
        f"v=1; a=rsa-sha256; d=example.org; s=2026; bh={_base64(chance, 43)}=; "
        f"b={_base64(chance, 172)}"
    )
    mail["Message-ID"] = f"<CA+{_draw(chance, 48)}@mail.example>"
    mail["From"], mail["To"] = "Ada <ada@example.org>", "team@example.org"
    mail["Subject"] = f"Re: [JIRA] (WEB-{chance.randint(1, 9999)}) Password reset is not working"
    mail["In-Reply-To"] = f"<{uuid.UUID(int=chance.getrandbits(128))}@example.org>"
    mail.set_content(
        "Hi,\n\nthe password is still rejected, and the token is expired after 15minutes.\n"
        f"See https://example.org/t/{_draw(chance, 22)}?utm_source=mail&utm_id={_draw(chance, 20)}\n"
        f"Order {chance.randint(10**7, 10**8)} ships on 2026-11-{chance.randint(1, 28):02}.\n"
    )
    mail.add_attachment(chance.randbytes(120), maintype="image", subtype="png", filename="a.png")
    return mail.as_string()
