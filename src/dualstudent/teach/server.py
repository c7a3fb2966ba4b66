"""Serves the page on this machine until it is stopped."""

import html
import os
import platform
import secrets
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from dualstudent.errors import UserError
from dualstudent.signals import StopRequest
from dualstudent.teach.app import build_app
from dualstudent.teach.classroom import Classroom
from dualstudent.teach.guard import Guard, is_loopback

LOOPBACK = "127.0.0.1"
_ANY = {"0.0.0.0": LOOPBACK, "::": "::1"}  # all addresses → the one of the machine itself
_USUAL_PORT = 8755
_SECONDS = 2  # that open connections have to end


class Door:
    """The socket that the page is served on.

    Args:
        host: address to listen on.
        port: to listen on; 0 for any; None for the usual one, or any if that is in use.

    Attributes:
        address: of the page, with its token, for a browser on this machine.
        outside: its address for others; None if they cannot get in.

    Raises:
        UserError: if the port is in use, or the host is not one of this machine.
    """

    def __init__(self, host: str = LOOPBACK, port: int | None = None) -> None:
        self.host, self.token = host, secrets.token_urlsafe(24)
        try:
            self.socket = _bind(host, _USUAL_PORT if port is None else port)
        except UserError:
            if port is not None:
                raise
            self.socket = _bind(host, 0)
        self.port: int = self.socket.getsockname()[1]
        self.address = self._name(_ANY.get(host, host))
        outside = self._name(platform.node() if host in _ANY else host)
        self.outside = None if is_loopback(host) else outside

    def _name(self, host: str) -> str:
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/{self.token}/"


@contextmanager
def opening_page(address: str, folder: Path) -> Iterator[Path]:
    """Keep a page in a folder, for this user only, that leads to the address.

    A browser is started with its path: everybody on the machine sees the words of a command.
    """
    path, url = folder / "open-page.html", html.escape(address)
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(
            '<!DOCTYPE html>\n<meta charset="utf-8">\n<title>dualstudent teach</title>\n'
            f'<meta http-equiv="refresh" content="0; url={url}">\n<a href="{url}">Open it</a>\n'
        )
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def serve(room: Classroom, door: Door, on_start: Callable[[], None] = lambda: None) -> None:
    """Serve the page until Ctrl-C, SIGTERM or SIGHUP.

    Args:
        room: all that is behind the page.
        door: where it is served.
        on_start: is called once the page can be opened.
    """
    app = Guard(build_app(room), door.token, door.host, door.port)
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_SECONDS,
        ws="none",
    )
    with StopRequest() as stop:
        _Server(config, stop, on_start).run(sockets=[door.socket])


class _Server(uvicorn.Server):
    def __init__(
        self, config: uvicorn.Config, stop: StopRequest, on_start: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._stop, self._on_start = stop, on_start

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_start()

    async def on_tick(self, counter: int) -> bool:
        return bool(await super().on_tick(counter)) or self._stop.received is not None


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
        found.listen(128)
    except (OSError, OverflowError) as error:
        found.close()
        why = error.strerror if isinstance(error, OSError) else "ports go up to 65535"
        raise UserError(
            f"cannot listen on {host} port {port}: {why}; choose another --port, or --port 0 "
            "for any that is free"
        ) from error
    return found
