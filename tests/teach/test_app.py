"""What the page may ask for, and what nobody else may."""

import json
import platform
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from PIL import Image

from dualstudent.teach.app import build_app
from dualstudent.teach.classroom import Classroom
from dualstudent.teach.estimate import Estimate
from dualstudent.teach.guard import Guard, is_loopback
from dualstudent.teach.learning import Answer, Question
from dualstudent.teach.server import Door
from dualstudent.teach.worker import Failed, FeaturesDone
from tests.support.asgi import Client
from tests.support.disk import full_disk
from tests.support.teaching import SilentLearner, open_room, open_session, write_images

TOKEN, PORT = "secret-token", 8755
ADDRESS = f"http://127.0.0.1:{PORT}"
PAGE = {"origin": ADDRESS, "sec-fetch-site": "same-origin"}


@pytest.fixture
def learner() -> SilentLearner:
    return SilentLearner()


@pytest.fixture
def room(tmp_path: Path, learner: SilentLearner) -> Iterator[Classroom]:
    room = open_room(write_images(tmp_path / "digits", 40), learner)
    yield room
    room.close()
    room.session.close()


@pytest.fixture
def client(room: Classroom) -> Client:
    return Client(Guard(build_app(room), TOKEN, "127.0.0.1", PORT), ADDRESS, PAGE)


def ask(client: Client, path: str, content: Any = None, **changes: Any) -> Any:
    return client.post(f"/{TOKEN}/{path}", json=content if content is not None else {}, **changes)


def find_labels(room: Classroom) -> dict[int, str]:
    return {n: entry.label for n, entry in enumerate(room.session.labels.entries) if entry.label}


def test_a_label_is_on_disk_before_the_page_is_told(client: Client, room: Classroom) -> None:
    (first, *_) = ask(client, "next", {"tab": "a", "count": 3}).json()
    answer = ask(client, "label", {"images": [first["number"]], "label": "zero"})
    assert answer.json()["labels"] == 1
    assert ",zero,train,labeled,ada," in room.session.journal.path.read_text()
    assert ask(client, "undo").json()["undone"][0]["number"] == first["number"]
    assert find_labels(room) == {}


def test_a_full_disk_is_said_and_nothing_is_saved(client: Client, room: Classroom) -> None:
    size = room.session.journal.path.stat().st_size
    with full_disk(size + 3):
        answer = ask(client, "label", {"images": [0], "label": "zero"})
    assert answer.status_code == 507
    assert "labels.csv" in answer.json()["error"]
    assert find_labels(room) == {}
    assert ask(client, "label", {"images": [0], "label": "zero"}).status_code == 200


LINK = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
REFUSED: tuple[tuple[str, dict[str, str], int], ...] = (
    ("/state", {}, 404),
    ("/wrong-token/state", {}, 404),
    (f"/{TOKEN}x/state", {}, 404),
    (f"/{TOKEN}/state", {"host": "evil.example"}, 421),
    (f"/{TOKEN}/state", {"host": f"evil.example:{PORT}"}, 421),
    (f"/{TOKEN}/state", {"host": "127.0.0.1:1"}, 421),
    (f"/{TOKEN}/state", {"origin": "http://evil.example"}, 403),
    (f"/{TOKEN}/state", {"origin": "null"}, 403),
    (f"/{TOKEN}/image/0/320", {"sec-fetch-site": "cross-site"}, 403),
    (f"/{TOKEN}/image/0/320", {"sec-fetch-site": "same-site"}, 403),
    (f"/{TOKEN}/", {"sec-fetch-site": "cross-site"}, 403),
    (f"/{TOKEN}/", LINK | {"sec-fetch-dest": "iframe"}, 403),
    (f"/{TOKEN}/state", LINK, 403),
    (f"/{TOKEN}/state", {"host": f"evil@127.0.0.1:{PORT}"}, 421),
    (f"/{TOKEN}/state", {"host": "127.0.0.1"}, 421),  # on another port than 80
)


@pytest.mark.parametrize(("path", "headers", "status"), REFUSED)
def test_others_are_refused(
    client: Client, path: str, headers: dict[str, str], status: int
) -> None:
    for found in (client.get(path, headers=headers), client.post(path, headers=headers)):
        assert found.status_code == status
        assert "default-src 'none'" in found.headers["content-security-policy"]
        assert "access-control-allow-origin" not in found.headers


@pytest.mark.parametrize(
    ("host", "address", "outside"),
    [
        ("127.0.0.1", "127.0.0.1", None),
        ("127.0.0.2", "127.0.0.2", None),
        ("localhost", "localhost", None),
        ("0.0.0.0", "127.0.0.1", platform.node()),
    ],
)
def test_an_address_that_can_be_opened(host: str, address: str, outside: str | None) -> None:
    door = Door(host, 0)
    door.socket.close()
    assert urlsplit(door.address).netloc == f"{address}:{door.port}"
    expected = None if outside is None else door.address.replace(address, outside)
    assert door.outside == expected


@pytest.mark.parametrize(
    ("host", "is_ours"),
    [("::1", True), ("127.1.2.3", True), ("192.0.2.1", False), ("::", False), ("laptop", False)],
)
def test_what_only_this_machine_reaches(host: str, is_ours: bool) -> None:
    assert is_loopback(host) == is_ours


@pytest.mark.parametrize(
    ("host", "port", "names"),
    [
        ("127.0.0.1", 80, ("127.0.0.1", "127.0.0.1:80", "localhost", "LOCALHOST")),
        ("::1", 80, ("[::1]", "[::1]:80", "localhost")),
        ("::1", PORT, (f"[::1]:{PORT}",)),
        ("0.0.0.0", PORT, (f"192.0.2.7:{PORT}", f"{platform.node()}:{PORT}")),
        ("Laptop.local", PORT, (f"laptop.local:{PORT}",)),
    ],
)
def test_the_names_of_this_machine_are_served(
    room: Classroom, host: str, port: int, names: tuple[str, ...]
) -> None:
    for name in names:
        headers = {"host": name, "origin": f"http://{name}"}
        client = Client(Guard(build_app(room), TOKEN, host, port), ADDRESS, headers)
        assert client.get(f"/{TOKEN}/state").status_code == 200, name


def test_the_page_can_be_opened_by_a_link_and_without_the_last_slash(client: Client) -> None:
    del client.headers["origin"]
    assert client.get(f"/{TOKEN}/", headers=LINK).status_code == 200
    found = client.get(f"/{TOKEN}")
    assert (found.status_code, found.headers["location"]) == (307, f"/{TOKEN}/")
    assert client.get(f"/{TOKEN[:-1]}").status_code == 404


def test_a_request_without_origin_changes_nothing(client: Client, room: Classroom) -> None:
    del client.headers["origin"]
    request = {"images": [0], "label": "zero"}
    assert ask(client, "label", request).status_code == 403
    client.headers["origin"] = ADDRESS
    form = {"content-type": "application/x-www-form-urlencoded"}
    sent = client.post(f"/{TOKEN}/label", content=json.dumps(request), headers=form)
    assert sent.status_code == 400
    assert find_labels(room) == {}


def test_only_images_of_the_listing_are_served_and_never_as_they_are(
    client: Client, room: Classroom
) -> None:
    secret = b"<script>alert(1)</script>"
    path = room.session.find_file(0)
    image = Image.open(path)
    with path.open("ab") as file:
        file.write(secret)
    found = client.get(f"/{TOKEN}/image/0/320")
    assert found.headers["content-type"] == "image/png"
    assert secret not in found.content
    np.testing.assert_array_equal(Image.open(BytesIO(found.content)), image)
    for wrong in (
        "9" * 5000 + "/320",
        "0/" + "9" * 5000,
        "40/320",
        "-1/320",
        "0/319",
        "x/320",
        "..%2f..%2fetc%2fpasswd/320",
        "0",
    ):
        assert client.get(f"/{TOKEN}/image/{wrong}").status_code == 404
    for wrong in ("..%2fapp.py", "page.html", "../app.py", "nothing.js"):
        assert client.get(f"/{TOKEN}/static/{wrong}").status_code == 404
    assert client.get(f"/{TOKEN}/static/main.js").headers["content-type"].startswith("text/java")


def test_an_image_that_is_not_in_the_folder_any_more_is_not_served(tmp_path: Path) -> None:
    session, elsewhere = open_session(write_images(tmp_path / "digits", 3)), tmp_path / "elsewhere"
    path = session.find_file(0)
    path.rename(elsewhere)
    session.close()
    room = open_room(path.parent)
    elsewhere.rename(path)  # after the listing
    client = Client(Guard(build_app(room), TOKEN, "127.0.0.1", PORT), ADDRESS, PAGE)
    assert client.get(f"/{TOKEN}/image/0/320").status_code == 404
    assert client.get(f"/{TOKEN}/image/1/320").status_code == 200
    room.session.close()


def test_an_unreadable_image_is_skipped_and_listed(client: Client, room: Classroom) -> None:
    room.session.find_file(3).write_bytes(b"no image")
    assert client.get(f"/{TOKEN}/image/3/320").status_code == 422
    state = client.get(f"/{TOKEN}/state").json()
    assert state["unreadable"]["count"] == 1
    assert state["unreadable"]["files"][0][0] == room.session.find_file(3).name
    asked = ask(client, "next", {"tab": "a", "count": 40}).json()
    assert 3 not in [item["number"] for item in asked]


def test_two_tabs_are_asked_for_different_images(client: Client) -> None:
    first, second = (
        {item["number"] for item in ask(client, "next", {"tab": tab, "count": 8}).json()}
        for tab in "ab"
    )
    assert len(first) == len(second) == 8
    assert not first & second
    assert len(ask(client, "next", {"tab": "c", "count": 40}).json()) == 40 - 16
    assert len(ask(client, "next", {"tab": "d", "count": 5}).json()) == 5  # nothing else is left


WRONG: tuple[tuple[str, Any], ...] = (
    ("label", {"images": [40], "label": "zero"}),
    ("label", {"images": [-1], "label": "zero"}),
    ("label", {"images": [], "label": "zero"}),
    ("label", {"images": [0], "label": " "}),
    ("label", {"images": [0], "event": "lunch"}),
    ("label", {"images": ["0"], "label": "zero"}),
    ("label", [1]),
    ("next", {"tab": "a", "count": 10**9}),
    ("classes", {"name": ""}),
    ("classes", {"name": "nothing", "remove": True}),
    ("training", {}),
    ("import", {"no": "task"}),
)


@pytest.mark.parametrize(("path", "content"), WRONG)
def test_what_is_wrong_is_said_in_a_line(
    client: Client, room: Classroom, path: str, content: Any
) -> None:
    before = room.session.journal.path.read_bytes()
    found = ask(client, path, content)
    assert found.status_code == 400
    assert "\n" not in found.json()["error"]
    assert room.session.journal.path.read_bytes() == before


def test_the_page_is_html_with_its_name_as_text(tmp_path: Path) -> None:
    room = open_room(write_images(tmp_path / "<b>&amp;", 3))
    client = Client(Guard(build_app(room), TOKEN, "127.0.0.1", PORT), ADDRESS, PAGE)
    page = client.get(f"/{TOKEN}/").text
    room.session.close()
    assert "&lt;b&gt;&amp;amp;" in page
    assert "<b>" not in page
    assert "http" not in page


def make_answer(room: Classroom, version: int, labels: int) -> Answer:
    count = len(room.session.labels.entries)
    names = ("one", "zero")
    confidence = np.linspace(0.5, 1, count)
    suspects = ((0, 1),)
    return Answer(
        version,
        labels,
        names,
        np.arange(count),
        np.arange(count) % 2,
        confidence,
        (5, 6, 7),
        suspects,
        Estimate(labels, 10, 8, 0.4, 0.9),
    )


def test_what_the_model_says_reaches_the_page(
    client: Client, room: Classroom, learner: SilentLearner
) -> None:
    ask(client, "label", {"images": [0, 2], "label": "one"})
    learner.report(FeaturesDone("pixels", 40, 40, {}))
    room.learn_if_due(at_once=True)
    asked_last = learner.questions[-1]
    learner.report(make_answer(room, asked_last.version, 1))  # features of one image are missing
    assert client.get(f"/{TOKEN}/state").json()["history"] == []
    learner.report(make_answer(room, asked_last.version, 2))
    state = client.get(f"/{TOKEN}/state").json()
    assert (state["model"]["estimate"]["correct"], state["left_out"]) == (8, 0)
    assert state["features"] == {"name": "pixels", "done": 40, "total": 40}
    assert state["history"][0]["labels"] == 2
    assert client.get(f"/{TOKEN}/state?since={state['changes']}").status_code == 204
    sample = {n for n, entry in enumerate(room.session.labels.entries) if entry.in_sample}
    seeming = client.get(f"/{TOKEN}/class?name=zero").json()
    shown = [item["number"] for item in (*seeming["surest"], *seeming["least"])]
    assert shown == [n for n in range(39, 0, -2) if n not in sample]
    assert [item["number"] for item in seeming["labeled"]] == []
    (suspect,) = client.get(f"/{TOKEN}/suspects").json()
    assert (suspect["number"], suspect["label"], suspect["seems"]) == (0, "one", "zero")
    ask(client, "label", {"images": [0], "label": "zero"})
    assert client.get(f"/{TOKEN}/suspects").json() == []
    for number in (min(sample), min(set(range(40)) - sample)):
        state = ask(client, "label", {"images": [number], "event": "not sure"}).json()
        ask(client, "undo")
        assert state["left_out"] == (number in sample)  # of those that measure it
    chosen = [n for n in (5, 6, 7) if n not in sample]
    asked = [item["number"] for item in ask(client, "next", {"tab": "a", "count": 6}).json()]
    assert [number for number in asked if number in (5, 6, 7)] == chosen
    learner.report(Failed("the disk is full"))
    assert client.get(f"/{TOKEN}/state").json()["trouble"] == "the disk is full"


def test_a_fault_in_learning_is_shown_and_it_goes_on(
    client: Client, room: Classroom, learner: SilentLearner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(what: Question | Estimate) -> None:
        raise RuntimeError("no more\nthreads")

    with monkeypatch.context() as broken:
        broken.setattr(learner, "ask", fail)
        answer = ask(client, "label", {"images": list(range(6)), "label": "one"})
        assert answer.status_code == 200  # it is saved
        assert "no more" in answer.json()["trouble"]
    before = len(learner.questions)
    room.learn_if_due(at_once=True)
    assert len(learner.questions) == before + 1
    assert client.get(f"/{TOKEN}/state").json()["trouble"] == ""
    found = make_answer(room, learner.questions[-1].version, 6)
    with monkeypatch.context() as broken:
        broken.setattr(room.history, "add", fail)
        learner.report(found)
    assert "no more" in client.get(f"/{TOKEN}/state").json()["trouble"]
    learner.report(FeaturesDone("pixels", 40, 40, {}))
    assert client.get(f"/{TOKEN}/state").json()["trouble"] == ""


def test_it_learns_after_every_few_labels(client: Client, learner: SilentLearner) -> None:
    assert len(learner.questions) == 1  # at the start, to spread the first images
    for number in range(4):
        ask(client, "label", {"images": [number], "label": "one"})
    ask(client, "label", {"images": [4], "label": "two"})
    assert len(learner.questions) >= 2
    last = learner.questions[-1]
    assert last.classes == ("one", "two")
    assert last.labels == {0: 0, 1: 0, 2: 0, 3: 0, 4: 1}
    assert not last.askable & last.labels.keys()


def test_set_aside_images_can_be_asked_for_again(client: Client) -> None:
    ask(client, "label", {"images": [7], "event": "skipped"})
    asked = ask(client, "next", {"tab": "a", "count": 40}).json()
    assert 7 not in [item["number"] for item in asked]
    again = ask(client, "next", {"tab": "a", "count": 5, "event": "skipped"}).json()
    assert [item["number"] for item in again] == [7]


@pytest.mark.parametrize("name", ["labels.csv", "label-studio.json"])
def test_labels_go_out_and_in(client: Client, room: Classroom, name: str) -> None:
    ask(client, "label", {"images": [0, 1], "label": "zero"})
    ask(client, "label", {"images": [2], "label": 'a, "b"'})
    before = find_labels(room)
    out = client.get(f"/{TOKEN}/export/{name}")
    assert "attachment" in out.headers["content-disposition"]
    ask(client, "undo")
    ask(client, "undo")
    assert find_labels(room) == {}
    headers = {"content-type": "application/json"}
    found = client.post(f"/{TOKEN}/import", content=out.content, headers=headers).json()
    assert (found["imported"]["labels"], found["imported"]["unknown"]) == (3, 0)
    assert find_labels(room) == before


@pytest.mark.parametrize("link", [False, True])
def test_class_folders_are_written_and_nothing_is_moved(
    client: Client, room: Classroom, link: bool
) -> None:
    ask(client, "label", {"images": [0, 1], "label": "zero"})
    found = ask(client, "folders", {"link": link}).json()["folders"]
    written = sorted(Path(found["path"]).rglob("*.png"))
    assert [path.parent.name for path in written] == ["zero", "zero"]
    assert all(path.is_symlink() == link for path in written)
    originals = [room.session.find_file(number) for number in (0, 1)]
    assert sorted(path.read_bytes() for path in written) == sorted(
        path.read_bytes() for path in originals
    )
    ask(client, "label", {"images": [2], "label": "../up"})
    assert ask(client, "folders", {"link": link}).status_code == 400
