"""`dualstudent teach` as a program: what it prints, what it refuses, how it ends."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_it_serves_until_it_is_stopped_and_keeps_the_labels(
    tmp_path: Path, number: signal.Signals
) -> None:
    digits = write_images(tmp_path / "digits", 6)
    environment = os.environ | {"DUALSTUDENT_CACHE": str(tmp_path / "cache")}
    words = ["teach", str(digits), "--port", "0", "--no-browser"]
    with subprocess.Popen(
        [sys.executable, "-m", "dualstudent", *words],
        stdout=subprocess.PIPE,
        env=environment,
        text=True,
    ) as process:
        assert process.stdout is not None
        address = None
        for line in process.stdout:
            if found := re.match(r"open (http://127\.0\.0\.1:\d+/\S+/)$", line):
                address = found[1]
                break
        assert address is not None
        origin = {"origin": address.rsplit("/", 2)[0]}
        sent = {"images": [0], "label": "zero"}
        answer = httpx.post(f"{address}label", json=sent, headers=origin, timeout=60)
        assert answer.json()["labels"] == 1
        process.send_signal(number)
        assert "1 labels" in process.stdout.read()
        assert process.wait() == 0
    assert ",zero,train,labeled," in (tmp_path / "digits-labels" / "labels.csv").read_text()
