"""WebSocket upgrades are refused at once, so that clients fall back to HTTP."""

from __future__ import annotations

import json

import pytest

from proxy.dialects import ROUTES
from proxy.types.passthrough import sample_request
from tests.conftest import Proxy

PATHS = sorted({sample_request(route).path for _, route in ROUTES})


async def upgrade(proxy: Proxy, path: str, protocol: str, key: str = "") -> tuple[int, str, str]:
    reader, writer = await proxy.connect()
    writer.write(
        f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n{key}"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode()
    )
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    return int(head.split()[1]), head.lower(), body


async def test_websocket_upgrade_of_served_path_is_refused(proxy: Proxy) -> None:
    for path in PATHS:
        status, head, body = await upgrade(proxy, path, "websocket")

        assert status == 426, path
        assert "\r\nx-headrace-error: websocket_not_supported\r\n" in head, path
        assert "\r\nupgrade: http/1.1\r\n" in head, path
        assert "\r\nconnection: close" in head, path
        error = json.loads(body)["error"]
        assert error["message"] == "WebSocket is not supported. Send HTTP requests instead.", path


@pytest.mark.parametrize("protocol", ["WebSocket", "h2c, websocket"])
async def test_websocket_is_recognized_in_any_spelling(protocol: str, proxy: Proxy) -> None:
    assert (await upgrade(proxy, "/v1/responses", protocol))[0] == 426


@pytest.mark.parametrize(
    ("path", "protocol", "status"),
    [("/v1/realtime", "websocket", 404), ("/v1/responses", "h2c", 405)],
)
async def test_refuses_other_upgrades(path: str, protocol: str, status: int, proxy: Proxy) -> None:
    assert (await upgrade(proxy, path, protocol))[0] == status
