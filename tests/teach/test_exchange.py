"""Labels to and from other programs."""

import json
from pathlib import Path
from typing import Any

import pytest

from dualstudent import UserError
from dualstudent.teach.exchange import Said, export_table, export_tasks, import_labels
from dualstudent.teach.session import Session
from tests.support.teaching import open_session, write_images


def read_labels(session: Session) -> dict[str, str]:
    return {Path(e.path).name: e.label for e in session.labels.entries if e.label}


def read_answers(session: Session) -> list[tuple[str, str]]:
    """Label and event of every image; of those without an answer, nothing."""
    return [("", "") if e.is_open else (e.label, e.event) for e in session.labels.entries]


@pytest.fixture
def session(tmp_path: Path) -> Session:
    folder = write_images(tmp_path / "digits", 8)
    (folder / "0-0.png").rename(folder / 'a b, "ü"%20?.png')
    return open_session(folder)


def test_tasks_have_the_form_that_label_studio_reads(session: Session) -> None:
    session.set_label([0], "zero")
    session.set_aside([1], "skipped")
    tasks = json.loads(export_tasks(session, {2: Said("one", 0.75)}, "v1"))
    assert len(tasks) == 8
    (choice,) = tasks[0]["annotations"][0]["result"]
    assert choice["type"] == "choices"
    assert choice["value"] == {"choices": ["zero"]}
    assert (choice["from_name"], choice["to_name"]) == ("choice", "image")
    assert tasks[1]["annotations"] == [{"result": [], "was_cancelled": True}]
    (guess,) = tasks[2]["predictions"]
    assert (guess["model_version"], guess["score"]) == ("v1", 0.75)
    assert guess["result"][0]["value"] == {"choices": ["one"]}
    addresses = [task["data"]["image"] for task in tasks]
    assert all(address.startswith("/data/local-files/?d=digits/") for address in addresses)
    assert not any(".." in address for address in addresses)  # Label Studio would refuse them
    session.close()


def test_what_label_studio_has_decided_since_counts(session: Session) -> None:
    session.set_aside([0, 1], "not sure")
    tasks = json.loads(export_tasks(session, {}, "v1"))
    tasks[0]["annotations"] += choose("zero")
    tasks[2]["annotations"] = [{"result": [], "was_cancelled": True}]
    least = {"image": tasks[1]["data"]["image"], "answer": "none of these"}  # JSON-MIN
    import_labels(session, json.dumps([tasks[0], tasks[2], least]).encode())
    assert read_answers(session)[:3] == [
        ("zero", "labeled"),
        ("", "none of these"),
        ("", "skipped"),
    ]
    session.close()


def test_a_journal_can_be_imported(session: Session, tmp_path: Path) -> None:
    session.set_label([0, 1], "zero")
    session.set_label([2], "one")
    session.undo()
    session.set_aside([1], "none of these")
    other = open_session(session.collection.source, tmp_path / "other")
    import_labels(other, session.journal.path.read_bytes())
    assert read_answers(other) == read_answers(session)
    session.close()
    other.close()


@pytest.mark.parametrize("form", [export_tasks, export_table])
def test_a_round_trip_changes_nothing(session: Session, tmp_path: Path, form: Any) -> None:
    names = ("=1+1", 'it, "is"\nso', "Ö")
    for number, name in enumerate(names):
        session.set_label([number], name)
    for number, event in enumerate(("not sure", "none of these", "skipped"), start=3):
        session.set_aside([number], event)
    session.set_label([6], "a mistake")
    text = form(session, {}, "v1") if form is export_tasks else form(session, {})
    other = open_session(session.collection.source, tmp_path / "other")
    assert import_labels(other, text.encode()).labels == 4
    session.undo()  # the mistake, which the other has taken over
    text = form(session, {}, "v1") if form is export_tasks else form(session, {})
    found = import_labels(other, text.encode())
    assert (found.labels, found.unknown) == (3, ())
    assert read_answers(other) == read_answers(session)
    version = other.version
    import_labels(other, text.encode())
    assert other.version == version  # nothing new, no row
    assert other.undo() == [6]
    assert len(other.undo() or []) == 7
    assert read_labels(other) == {}
    session.close()
    other.close()


def choose(label: str) -> list[dict[str, Any]]:
    return [{"result": [{"type": "choices", "value": {"choices": [label]}}]}]


def test_other_ways_to_name_an_image(session: Session) -> None:
    names = [Path(entry.path).name for entry in session.labels.entries]
    tasks = [
        {"data": {"image": f"/data/upload/1/abcd1234-{names[1]}"}, "annotations": choose("a")},
        {"data": {"image": f"http://elsewhere/x/digits/{names[2]}"}, "annotations": choose("b")},
        {"image": f"/data/local-files/?d=digits/{names[3]}", "choice": "c"},
        {"data": {"image": "missing.png"}, "annotations": choose("d")},
        {"data": {"image": names[4]}, "annotations": []},
    ]
    found = import_labels(session, json.dumps(tasks).encode())
    assert (found.labels, found.unknown) == (3, ("missing.png",))
    assert read_labels(session) == {names[1]: "a", names[2]: "b", names[3]: "c"}
    session.close()


def test_of_several_files_of_one_name_none_is_taken(tmp_path: Path) -> None:
    for album in ("2024", "2025"):
        write_images(tmp_path / "albums" / album, 2)
    session = open_session(tmp_path / "albums")
    name = Path(session.labels.entries[0].path).name
    table = f"path,label\n{name},cat\n2025/{name},dog\n"
    found = import_labels(session, table.encode())
    assert (found.labels, found.unknown) == (1, (name,))
    (labeled,) = [entry.path for entry in session.labels.entries if entry.label]
    assert labeled.endswith(f"2025/{name}")
    session.close()


WRONG = (
    *(b"", b"\xff\xfe", b"[", b"[1]", b"{}", b"a,b\n1,2\n", b"path,label\n", b'path,label\n"a'),
    b"[" * 100_000,
    b'[{"annotations": [5], "data": {"image": 3}}]',
)


@pytest.mark.parametrize("content", WRONG)
def test_a_broken_file_is_refused_in_a_line(session: Session, content: bytes) -> None:
    with pytest.raises(UserError):
        import_labels(session, content)
    assert read_labels(session) == {}
    session.close()
