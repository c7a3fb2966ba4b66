"""The readers of ``teach``: requests to its server, and the journal of labels."""

import asyncio
import json
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from unittest.mock import patch
from urllib.parse import unquote

import numpy as np
from starlette.types import ASGIApp, Message

from dualstudent.teach import app
from dualstudent.teach.classroom import Classroom
from dualstudent.teach.estimate import Estimate
from dualstudent.teach.guard import Guard
from dualstudent.teach.images import Collection, find_collection
from dualstudent.teach.journal import COLUMNS
from dualstudent.teach.learning import Answer
from dualstudent.teach.session import Session
from tests.support.teaching import SilentLearner, write_images

_NEXT = b"\n\x1e\n"  # stands between the requests of an input
_TOKEN, _IMAGES = "token", 8
_HEADERS = {
    "host": "localhost:8755",
    "origin": "http://localhost:8755",
    "content-type": "application/json",
}
_ANSWER = Answer(
    *(1, 2, ("cat", "dog"), np.arange(_IMAGES), np.arange(_IMAGES) % 2),
    *(np.linspace(0.5, 1, _IMAGES), (5, 6), ((0, 1),), Estimate(2, 2, 1, 0.1, 0.9)),
)


def seed_requests() -> list[bytes]:
    """Requests of the page; what is labeled before the others makes them go further."""
    label = _post("label", {"images": [0, 2], "label": "cat"})
    task = {"data": {"image": "/data/?d=digits/1.png"}, "annotations": [{"result": [_CHOICE]}]}
    return [
        label,
        _join(label, b"GET / \n\n", b"GET /state?since=1\n\n", b"GET /image/3/320\n\n"),
        _join(label, b"GET /class?name=cat\n\n", b"GET /suspects\n\n", _post("undo", {})),
        _join(label, b"GET /export/label-studio.json\n\n", b"GET /export/labels.csv\n\n"),
        _join(label, _post("classes", {"name": "cat", "new": "dog"}), _post("undo", {})),
        _join(label, _post("classes", {"name": "cat", "remove": True}), b"GET /report/1\n\n"),
        _join(
            _post("classes", {"name": "dog"}), _post("label", {"images": [1], "event": "skipped"})
        ),
        _post("next", {"tab": "a", "count": 3, "shown": [1], "label": "cat", "event": ""}),
        _join(label, _post("folders", {"link": True}), _post("training", {"stop": False})),
        _post("import", [task]),
        b"POST /import\n\npath,label\n0-0.png,cat\n",
    ]


_CHOICE = {"value": {"choices": ["cat"]}}


def _post(path: str, content: object) -> bytes:
    return f"POST /{path}\n\n{json.dumps(content)}".encode()


def _join(*requests: bytes) -> bytes:
    return _NEXT.join(requests)


def read_requests(content: bytes, folder: Path) -> None:
    """Answer requests one after the other in a new session; an answer with code 500 raises."""

    async def call_now(work, *arguments):  # type: ignore[no-untyped-def]  # where lines are traced
        return work(*arguments)

    learner, session = SilentLearner(), _open_new(folder)
    room = Classroom(session, start=learner.start)
    learner.report(_ANSWER)
    server = Guard(app.build_app(room), _TOKEN, "127.0.0.1", 8755)
    try:
        with (
            patch.object(app, "run_in_threadpool", call_now),
            patch.object(room.training, "start", lambda tested: None),
        ):
            asyncio.run(_send_all(server, content.split(_NEXT)[:8]))
    finally:
        room.close()
        session.close()


async def _send_all(server: ASGIApp, requests: list[bytes]) -> None:
    for request in requests:
        await _send(server, request)


async def _send(server: ASGIApp, request: bytes) -> None:
    """Send a request as a web server hands it over: a line, headers, an empty line, the body."""
    head, _, body = request.partition(b"\n\n")
    first, *more = head.decode("latin-1").split("\n")
    method, _, target = first.partition(" ")
    path, _, query = target.partition("?")
    headers = _HEADERS | dict(_read_headers(more))
    scope = {
        "type": "http",
        "method": method,
        "path": unquote(f"/{_TOKEN}{path}"),
        "query_string": query.encode("latin-1"),
        "http_version": "1.1",
        "scheme": "http",
        "headers": [(k.encode("latin-1"), v.encode("latin-1")) for k, v in headers.items()],
    }

    async def receive() -> Message:
        return {"type": "http.request", "body": body}

    async def send(message: Message) -> None:
        assert message.get("status") != 500

    await server(scope, receive, send)


def _read_headers(lines: list[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        name, _, value = line.partition(":")
        yield name.strip().lower(), value.strip()


def seed_journals() -> list[bytes]:
    """Journals with every event."""
    rows = [
        *("../digits/0-0.png,cat,train,labeled,ada,2026-01-01,1+,", ",dog,,class added,ada,,1,0"),
        *(",lion,,class renamed,ada,,2,cat", "../digits/1-1.png,,train,skipped,ada,,3,"),
        *("gone.png,dog,test,listed,,,,sample", ",,,undone,ada,,2,", ",dog,,class removed,ada,,4,"),
    ]
    header = ",".join(COLUMNS)
    return ["\n".join([header, *rows[:count], ""]).encode() for count in (7, 3, 0)]


def read_journal(content: bytes, folder: Path) -> None:
    """Open a session on a journal, undo a decision and label an image."""
    session = _open_new(folder, content)
    try:
        room = Classroom(session, start=SilentLearner().start)
        session.undo()
        session.set_label([0], "cat")
        room.choose_next("a", 3, [])
    finally:
        session.close()


def _open_new(folder: Path, journal: bytes | None = None) -> Session:
    out = folder / "labels"
    shutil.rmtree(out, ignore_errors=True)
    if journal is not None:
        out.mkdir()
        (out / "labels.csv").write_bytes(journal)
    return Session(_collect(folder), out, "ada")


@cache
def _collect(folder: Path) -> Collection:
    return find_collection(write_images(folder / "digits", _IMAGES))
