"""Random credentials in typical contexts. None is real or stored."""

from __future__ import annotations

# ruff: noqa: RUF001  # marks of Chinese sentences
import random
import string
from base64 import b64encode
from typing import NamedTuple
from urllib.parse import quote

ALNUM = string.ascii_letters + string.digits
LOWER, UPPER = string.ascii_lowercase + string.digits, string.ascii_uppercase + string.digits
URL_SAFE = ALNUM + "-_"


class Credential(NamedTuple):
    """A text with a credential, and the rule that finds it (``kind``)."""

    kind: str
    text: str
    secret: str


def draw(seed: str, count: int, alphabet: str = ALNUM) -> str:
    """Return random characters that begin and end with a letter, and have digits between."""
    chance = random.Random(seed)
    body = "".join(chance.choices(alphabet, k=count - 6))
    return f"{chance.choice('bcdf')}{body[:9]}7q4{body[9:]}{chance.choice('ghjk')}z"


# Prefixes of providers without a rule of their own.
PREFIXES = {
    "csk-": LOWER, "lin_oauth_": LOWER, "nvapi-": URL_SAFE, "pcsk_": URL_SAFE, "vck_": URL_SAFE,
    "napi_": ALNUM, "figd_": URL_SAFE, "llx-": ALNUM, "wandb_v1_": ALNUM, "xai-": ALNUM,
    "gsk_": ALNUM, "tgp_v1_": URL_SAFE, "sk-": ALNUM, "mlsn.": LOWER, "CCIPAT_": ALNUM,
    "ACME-": ALNUM, "waka_": LOWER, "PMAX-": UPPER, "unkey_": ALNUM, "sb_secret_": URL_SAFE,
    "phx_": ALNUM, "cog_": LOWER, "acmecorp_live_": ALNUM, "rnd_": ALNUM,
}  # fmt: skip


def generic() -> list[Credential]:
    matches = []
    for prefix, alphabet in PREFIXES.items():
        for size in (32, 40, 64):
            secret = prefix + draw(f"{prefix}{size}", size, alphabet)
            matches.append(Credential("generic-token", f"Please use {secret}, and thanks", secret))
    return matches


PLACES = ("{}", "({})", "`{}`", '"{}"', "<{}>", "{}.", "run X={} now", "https://a.example/?k={}&z=1",
          "https://hooks.example/v1/{}/x", "{}\\nnext", "is:{};", "\n{}\n", "这是{}。")  # fmt: skip

USER = "ada"
WORD = "Sommer" + "2024xy"
SIGNATURE = quote(b64encode(draw("signature", 32).encode()).decode(), safe="")
LOGIN = repr(f"{USER}:{WORD}")
BASIC = b64encode(f"{USER}:{WORD}".encode()).decode()
ACCOUNT_KEY = b64encode(draw("account", 64).encode()).decode()
KEY = draw("key", 32, LOWER)

IN_CONTEXT = [
    Credential(
        "azure-sas-signature",
        f"https://a.blob.core.windows.net/c?sv=2024-11-04&se=2026&sig={SIGNATURE}&sp=r",
        SIGNATURE,
    ),
    *(
        Credential("connection-password", text.format(WORD), WORD)
        for text in (
            "Server=db.example;Database=orders;User Id=ada;Password={};Encrypt=true",
            "Data Source=db;uid=ada;pwd={}",
            "Password={};User ID=ada",
            "jdbc:sqlserver://db.example:1433;databaseName=o;user=ada;password={};encrypt=true",
        )
    ),
    Credential(
        "query-password", f"jdbc:postgresql://db.example/o?user=ada&password={WORD}&ssl=true", WORD
    ),
    Credential("oracle-url-password", f"jdbc:oracle:thin:ada/{WORD}@//db.example:1521/o", WORD),
    Credential("connection-key", f"AccountName=a;AccountKey={ACCOUNT_KEY};x", ACCOUNT_KEY),
    Credential("netrc-password", f"machine api.example\n  login ada\n  password {WORD}\n", WORD),
    Credential("curl-password", f"curl -u {USER}:{WORD} https://api.example", WORD),
    Credential("curl-password", f"curl --user {LOGIN} https://api.example", WORD),
    Credential("basic-credentials", f"Authorization: Basic {BASIC}", BASIC),
    Credential("basic-credentials", f"-H 'X-Auth: Basic {BASIC}'", BASIC),
    *(
        Credential("password", text.format(WORD), WORD)
        for text in (
            "The password is {}, keep it",
            "the password for the staging server is {}",
            "password: {}",
            'Password = "{}"',
            "Passphrase is now {}.",
            "Das Passwort lautet {}.",
            "Das Passwort für den Server ist {}",
            "Kennwort: {}",
            "La contraseña es {}.",
            "la contraseña del servidor es {}",
            "Contraseña: {}",
            "clave: {}",
            "密码是{}。",
            "密码为 {}",
            "登录密码：{}，请保存",
            "口令：{}",
        )
    ),
    *(
        Credential("stated-key", text.format(KEY), KEY)
        for text in (
            "Our API key is {}.",
            "the access token for the gateway is `{}`",
            "Der API-Schlüssel lautet {}.",
            "La clave de API es {}",
            "令牌是{}。",
        )
    ),
]  # fmt: skip

NO_CREDENTIALS = [
    "The password is required.", "The password is stored as SHA-256.", "password is base64-encoded",
    "The password is 8-16 characters long.", "password: str = field()", "Password: ********",
    "the password is at least 12characters", "Password=${DB_PASSWORD};User ID=ada",
    "Server=x;Database=y;User Id=myUser;Password=myPassword;", "password: <your password>",
    "Das Passwort ist falsch.", "Das Passwort muss 12 Zeichen haben.", "Das Passwort ist UTF-8.",
    "La contraseña es obligatoria.", "密码是必填项", "密码长度为8位", "The token is invalid.",
    "Basic authentication", "Basic configuration options", "basic QWxhZGRpbjpvcGVuIHNlc2FtZQ",
    "The access token is config.access_token_from_environment", "sig=verify",
    "call_" + draw("call", 24), "chatcmpl-" + draw("chat", 29), "toolu_" + draw("toolu", 24),
    '"request_id": "abc_' + draw("request", 24) + '"', "sha256=abc-" + draw("digest", 40),
    "main-2fd4e1c67a2d28fced849ee1bb76e7391b93eb12", "web-7c9e6679-7425-40de-944b-e07fc1f90ae7",
    "linux-x86_64-cpython-311-manylinux2014-none-any-wheel", "NVIDIA-Nemotron-3-Ultra-550B-A55B",
    "nous-hermes-2-mixtral-8x7b-dpo-2024-03-01-preview", "rust_openssl.MLKEM768X25519PrivateKeyV2",
    "release-2024-11-05-hotfix-for-payments-v2", "test_that_the_2nd_call_of_3_returns_http404",
    "awseb-e-w-AWSEBLoa-" + "1RDLX6TC9VUAO-0123456789.us-west-2.elb.amazonaws.com",
    "build/out/chunk-" + draw("chunk", 28) + "/a", "/assets/index-" + draw("asset", 28) + ".js",
    "#diff-" + draw("anchor", 40),
]  # fmt: skip
