import gzip
import hashlib
import os
import socket
from collections.abc import Iterator
from functools import partial
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path
from threading import Thread
from typing import NoReturn

import pytest

from dualstudent.data.sources.files import (
    PublishedFile,
    fetch,
    raise_damaged,
    read_unpacked,
    warn_if_unpublished,
)
from dualstudent.errors import DataWarning, UserError

NAME, CONTENT = "digits.bin", b"what the authors published"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


def published(address: str, content: bytes = CONTENT) -> PublishedFile:
    return PublishedFile(NAME, address, hashlib.sha256(content).hexdigest())


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """Of a server that offers one file."""
    offered = tmp_path / "offered"
    offered.mkdir()
    (offered / NAME).write_bytes(CONTENT)
    handler = partial(SimpleHTTPRequestHandler, directory=str(offered))
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture
def dead_address() -> Iterator[str]:
    """Where nobody listens, and nobody else can start to."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}/"


def test_a_missing_file_is_downloaded(tmp_path: Path, address: str) -> None:
    folder = tmp_path / "data" / "digits"

    path = fetch(published(address), folder)

    assert path == folder / NAME
    assert path.read_bytes() == CONTENT


def test_a_download_with_another_checksum_is_refused(tmp_path: Path, address: str) -> None:
    with pytest.raises(UserError, match=NAME):
        fetch(published(address, content=b"something else"), tmp_path)

    assert not (tmp_path / NAME).exists()


def test_the_message_tells_other_content_from_no_connection(tmp_path: Path, address: str) -> None:
    with pytest.raises(UserError, match="SHA-256"):
        fetch(published(address, content=b"something else"), tmp_path)


def test_a_file_that_the_server_lacks_is_refused(tmp_path: Path, address: str) -> None:
    missing = PublishedFile("missing.bin", address, "0" * 64)

    with pytest.raises(UserError, match=r"missing\.bin .* could not be downloaded"):
        fetch(missing, tmp_path)

    assert not (tmp_path / "missing.bin").exists()


def test_without_a_server_the_message_says_where_to_put_the_file(
    tmp_path: Path, dead_address: str
) -> None:
    with pytest.raises(UserError) as refused:
        fetch(published(dead_address), tmp_path)

    message = str(refused.value)
    assert f"{NAME} is not in {tmp_path}" in message
    assert dead_address in message
    assert "or set DUALSTUDENT_DATA" in message
    assert "\n" not in message


def test_a_file_that_is_there_is_not_downloaded(tmp_path: Path, dead_address: str) -> None:
    (tmp_path / NAME).write_bytes(b"the user's own")

    path = fetch(published(dead_address), tmp_path)

    assert path.read_bytes() == b"the user's own"


def test_a_folder_that_cannot_be_written_is_named_with_the_cause(
    tmp_path: Path, dead_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(path: str, **_: object) -> NoReturn:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "makedirs", denied)  # permissions do not stop an administrator
    folder = tmp_path / "closed"

    expected = rf"cannot write to {folder}: .*Permission denied.*; choose .*--set data\.folder=…"
    with pytest.raises(UserError, match=expected):
        fetch(published(dead_address), folder)


def test_only_what_a_broken_file_causes_is_blamed_on_the_file(tmp_path: Path) -> None:
    path = tmp_path / NAME

    for harmless in (MemoryError(), KeyError("a mistake of ours")):
        with pytest.raises(type(harmless)), raise_damaged(path, "broken", (OSError, EOFError)):
            raise harmless
    with pytest.raises(MemoryError), raise_damaged(path, "broken", Exception):
        raise MemoryError
    expected = rf"^{path}: broken \(ended\); delete it to download the published one$"
    with (
        pytest.raises(UserError, match=expected),
        raise_damaged(path, "broken", (OSError, EOFError)),
    ):
        raise EOFError("ended")


def test_a_file_that_unpacks_to_too_much_is_refused(tmp_path: Path) -> None:
    path = tmp_path / NAME
    path.write_bytes(gzip.compress(b"1234"))
    with gzip.open(path) as unpacked:
        assert read_unpacked(path, unpacked, 4) == b"1234"
    with (
        pytest.raises(UserError, match=rf"^{path}: holds more than"),
        raise_damaged(path, "broken", ValueError),
        gzip.open(path) as unpacked,
    ):
        read_unpacked(path, unpacked, 3)


def test_missing_rights_are_told_without_a_name_from_the_system(tmp_path: Path) -> None:
    expected = rf"^{tmp_path}: may not be read \(closed\); ask for read rights"
    with pytest.raises(UserError, match=expected), raise_damaged(tmp_path, "broken", Exception):
        raise PermissionError("closed")


def test_the_published_file_with_the_published_count_gives_no_warning(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(CONTENT)

    warn_if_unpublished("digits", [(tmp_path / NAME, SHA256)], found=5, expected=5)


@pytest.mark.parametrize(
    ("content", "found"), [(b"other", 5), (CONTENT, 4)], ids=["other bytes", "other count"]
)
def test_anything_else_gives_one_warning(tmp_path: Path, content: bytes, found: int) -> None:
    (tmp_path / NAME).write_bytes(content)

    expected = f"^digits: .*{found} images of 5 published; .* put the published files there$"
    with pytest.warns(DataWarning, match=expected) as caught:
        warn_if_unpublished("digits", [(tmp_path / NAME, SHA256)], found=found, expected=5)

    assert len(caught) == 1
