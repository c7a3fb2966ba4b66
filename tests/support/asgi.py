"""A client that calls a web application without a socket."""

from typing import Any

import anyio
import httpx
from starlette.types import ASGIApp


class Client:
    """Sends requests to ``app``.

    Attributes:
        headers: sent with every request.
    """

    def __init__(self, app: ASGIApp, address: str, headers: dict[str, str]) -> None:
        self._app, self._address, self.headers = app, address, dict(headers)

    def get(self, path: str, **changes: Any) -> httpx.Response:
        return self._send("GET", path, **changes)

    def post(self, path: str, **changes: Any) -> httpx.Response:
        return self._send("POST", path, **changes)

    def _send(self, method: str, path: str, **changes: Any) -> httpx.Response:
        headers = self.headers | changes.pop("headers", {})

        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(self._app)
            async with httpx.AsyncClient(transport=transport, base_url=self._address) as client:
                return await client.request(method, path, headers=headers, **changes)

        return anyio.run(send)
