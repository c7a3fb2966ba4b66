"""Nobody else in: every request is checked before anything is read or changed."""

import ipaddress
import platform
import re
import secrets
from collections.abc import Iterable

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
}
_HOST = re.compile(
    r"(\[[\da-f:.]+\]|[^\s:@/\[\]]+)(?::(\d{1,5}))?"
)  # name, and port unless it is 80


class Guard:
    """Lets requests through that know the token and come from the page itself.

    A page of another site knows neither the token nor may send its Origin; one that has pointed
    its own name to this machine (DNS rebinding) sends another Host.

    Args:
        app: gets the requests, without the token in their paths.
        token: the first part of every path.
        host: that is listened on.
        port: that is listened on.
    """

    def __init__(self, app: ASGIApp, token: str, host: str, port: int) -> None:
        self._app, self._token = app, token
        self._port, self._names = port, set(_list_names(host))
        self._is_open = host in ("0.0.0.0", "::")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # there are no websockets; lifespan has no request
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        prefix = f"/{self._token}"
        answer: ASGIApp | None = self._find_refusal(scope)
        if answer is None and scope["path"] == prefix:  # the page names all else relative to it
            answer = RedirectResponse(f"{prefix}/")
        if answer is None:
            answer = self._app
            scope = dict(scope, path=scope["path"].removeprefix(prefix), root_path="")
        await answer(scope, receive, _add_headers(send))

    def _find_refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not self._is_own(host):
            return PlainTextResponse("another host is not served here\n", 421)
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
        changes = scope["method"] not in ("GET", "HEAD")
        if (
            (site not in ("same-origin", "none") and not self._opens_page(scope, headers))
            or (origin is not None and origin != f"http://{host}")
            or (changes and origin is None)
        ):
            return PlainTextResponse("only the page itself may ask for this\n", 403)
        given = scope["path"].split("/")[1] if scope["path"].startswith("/") else ""
        if not secrets.compare_digest(given.encode(), self._token.encode()):
            text = "open the whole address that 'dualstudent teach' has printed\n"
            return PlainTextResponse(text, 404)
        return None

    def _opens_page(self, scope: Scope, headers: Headers) -> bool:
        """Whether the page is opened in a tab by a link, as from the file for the browser."""
        asked = (scope["method"], headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest"))
        return asked == ("GET", "navigate", "document") and scope["path"] == f"/{self._token}/"

    def _is_own(self, host: str) -> bool:
        parts = _HOST.fullmatch(host.lower())
        if parts is None or int(parts[2] or 80) != self._port:
            return False
        name = parts[1].strip("[]")
        return name in self._names or (self._is_open and _find_address(name) is not None)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    address = _find_address(host)
    return host == "localhost" if address is None else address.is_loopback


def _list_names(host: str) -> Iterable[str]:
    yield from ("127.0.0.1", "localhost", "::1", host.lower())
    if host in ("0.0.0.0", "::"):
        yield platform.node().lower()


def _find_address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


def _add_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return send_with_headers
