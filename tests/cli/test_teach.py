"""`dualstudent teach` as a program: what it prints, what it refuses, how it ends."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from dualstudent.data.images.folders import holds_domains
from tests.support.command import Command
from tests.support.teaching import write_images


def test_what_is_wrong_is_one_line(tmp_path: Path, command: Command) -> None:
    (tmp_path / "empty").mkdir()
    digits = str(write_images(tmp_path / "digits", 3))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for words, expected in (
            (["nowhere"], "nowhere"),
            ([str(tmp_path / "empty")], "no images"),
            ([digits, "--port", port], f"port {port}"),
            ([digits, "--port", "70000"], "65535"),
            ([digits, "--host", "192.0.2.1"], "192.0.2.1"),
            ([digits, "--import", str(tmp_path / "missing.json")], "missing.json"),
        ):
            code, _, messages = command("teach", *words)
            assert code == 2
            assert expected in messages
            assert messages.count("\n") == 1


def test_labels_go_in_and_out_without_a_page(tmp_path: Path, command: Command) -> None:
    digits = str(write_images(tmp_path / "digits", 6))
    (tmp_path / "in.csv").write_text("path,label\n0-0.png,zero\n1-1.png,one\nno.png,two\n")
    code, said, messages = command("teach", digits, "--import", str(tmp_path / "in.csv"))
    assert (code, said.splitlines()[0][:8]) == (0, "2 labels")
    assert "no.png" in messages
    out = tmp_path / "out.json"
    assert command("teach", digits, "--export", str(out))[0] == 0
    given = [task["data"]["path"] for task in json.loads(out.read_text()) if "annotations" in task]
    assert [Path(path).name for path in given] == ["0-0.png", "1-1.png"]
    assert command("teach", digits, "--export", str(out))[0] == 2  # it exists
    folders = tmp_path / "classes"
    assert command("teach", digits, "--folders", str(folders), "--link")[0] == 0
    assert (folders / "zero" / "0-0.png").resolve() == tmp_path / "digits" / "0-0.png"


def test_labels_of_a_domain_leave_the_folder_of_both_as_it_is(
    tmp_path: Path, command: Command
) -> None:
    for name in ("source/zero", "source/one", "target"):
        write_images(tmp_path / "both" / name, 2)
    (tmp_path / "in.csv").write_text("path,label\n0-0.png,zero\n")
    target = str(tmp_path / "both" / "target")
    assert command("teach", target, "--import", str(tmp_path / "in.csv"))[0] == 0
    assert (tmp_path / "both-target-labels" / "labels.csv").is_file()
    assert holds_domains(tmp_path / "both")


LIMIT = 300  # seconds; it takes less than one, but the machine may be busy
BROWSER = """#!/bin/sh
echo "$@" > words
page=${1#file://}
stat -c %a "$page" > rights
cat "$page" > page.partial
mv page.partial page
"""


def listen_to_hangups() -> None:
    """Whatever the tests were started with: under nohup, SIGHUP is ignored, and stays so."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "has_browser", "host", "shown"),
    [
        (signal.SIGINT, True, "127.0.0.1", "127.0.0.1"),
        (signal.SIGTERM, False, "localhost", "localhost"),
        (signal.SIGHUP, False, "0.0.0.0", "127.0.0.1"),
    ],
)
def test_it_serves_until_it_is_stopped_and_keeps_the_labels(
    tmp_path: Path, number: signal.Signals, has_browser: bool, host: str, shown: str
) -> None:
    digits = write_images(tmp_path / "digits", 6)
    environment = os.environ | {"DUALSTUDENT_CACHE": str(tmp_path / "cache"), "BROWSER": ""}
    if has_browser:
        browser = tmp_path / "browser"
        browser.write_text(BROWSER)
        browser.chmod(0o700)
        environment["BROWSER"] = str(browser)
    else:
        environment["PATH"] = str(tmp_path)
    words = ["teach", str(digits), "--port", "0", "--host", host]
    with subprocess.Popen(
        [sys.executable, "-m", "dualstudent", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        cwd=tmp_path,
        text=True,
        preexec_fn=listen_to_hangups,  # noqa: PLW1509  # no other thread runs here
    ) as process:
        assert process.stdout is not None
        address = None
        for line in process.stdout:
            if found := re.match(rf"open (http://{re.escape(shown)}:\d+/\S+/)$", line):
                address = found[1]
                break
        assert address is not None
        origin = {"origin": address.rsplit("/", 2)[0]}
        sent = {"images": [0], "label": "zero"}
        answer = httpx.post(f"{address}label", json=sent, headers=origin, timeout=60)
        assert answer.json()["labels"] == 1
        if has_browser:
            end = time.monotonic() + LIMIT
            while not (tmp_path / "page").exists():
                assert time.monotonic() < end
                time.sleep(0.05)
        process.send_signal(number)
        assert "1 labels" in process.stdout.read()
        assert process.stderr is not None
        messages = process.stderr.read()
        assert ("no browser was found" in messages) != has_browser
        assert ("can be reached from outside" in messages) == (host == "0.0.0.0")
        assert process.wait() == 0
    if has_browser:  # everybody sees the words of a command
        assert address.split("/")[-2] not in (tmp_path / "words").read_text()
        assert (tmp_path / "rights").read_text() == "600\n"
        assert f"url={address}" in (tmp_path / "page").read_text()
    assert not list(tmp_path.rglob("open-page.html"))
    assert ",zero,train,labeled," in (tmp_path / "digits-labels" / "labels.csv").read_text()
