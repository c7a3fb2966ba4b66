from collections.abc import Callable
from pathlib import Path

import pytest

from dualstudent import UserError
from dualstudent.data.images.tables import list_table
from dualstudent.teach.images import find_collection
from dualstudent.teach.session import Session
from dualstudent.teach.snapshot import write_class_folders
from tests.support.teaching import open_session, write_images


def labels(session: Session) -> dict[str, str]:
    return {Path(e.path).name: e.label for e in session.labels.entries if e.label}


def reopen(session: Session) -> Session:
    session.close()
    return Session(session.collection, session.folder)


def test_labels_survive_a_second_start_and_can_be_undone_then(tmp_path: Path) -> None:
    session = open_session(write_images(tmp_path / "digits", 8))
    names = [Path(entry.path).name for entry in session.labels.entries]
    session.set_label([0], "zero")
    session.set_label([1, 2], "one")
    session.set_label([1], "two")
    session = reopen(session)
    assert labels(session) == {names[0]: "zero", names[1]: "two", names[2]: "one"}
    assert session.labels.classes == ["zero", "one", "two"]
    assert session.undo() == [1]
    assert labels(session) == {names[0]: "zero", names[1]: "one", names[2]: "one"}
    session = reopen(session)
    assert sorted(session.undo() or []) == [1, 2]
    assert session.undo() == [0]
    assert session.undo() is None
    assert labels(session) == {}
    session = reopen(session)
    assert session.undo() is None
    assert all(entry.is_open for entry in session.labels.entries)
    session.close()


def test_a_class_that_came_with_a_decision_goes_with_it(tmp_path: Path) -> None:
    folder = write_images(tmp_path / "digits" / "unlabeled", 8).parent
    session = open_session(folder)
    session.set_label([0], "zero")
    session.set_many([(1, "one", "labeled"), (2, "two", "labeled"), (3, "zero", "labeled")])
    assert session.labels.classes == ["zero", "one", "two"]
    session.undo()
    assert session.labels.classes == ["zero"]
    session = reopen(session)
    assert session.labels.classes == ["zero"]
    session.close()
    for name in ("one", "zero"):  # images that come with the class since
        write_images(folder / name, 4)
    session = open_session(folder)
    assert session.undo() == [0]
    assert {entry.label for entry in session.labels.entries} == {"", "zero", "one"}
    assert session.labels.classes == ["zero", "one"]
    session.close()


def test_images_are_set_aside_and_come_back(tmp_path: Path) -> None:
    session = open_session(write_images(tmp_path / "digits", 6))
    session.set_label([0], "zero")
    for event in ("skipped", "not sure", "none of these"):
        session.set_aside([0], event)
        entry = session.labels.entries[0]
        assert (entry.label, entry.event, entry.is_open) == ("", event, False)
    session = reopen(session)
    assert session.labels.entries[0].event == "none of these"
    for event in ("not sure", "skipped"):
        session.undo()
        assert session.labels.entries[0].event == event
    session.undo()
    assert session.labels.entries[0].label == "zero"
    with pytest.raises(UserError, match="lunch"):
        session.set_aside([0], "lunch")
    session.close()


def test_classes_are_renamed_joined_and_removed(tmp_path: Path) -> None:
    session = open_session(write_images(tmp_path / "digits", 6))
    session.add_class("empty")
    session.set_label([0, 1], "zero")
    session.set_label([2], "one")
    session.rename_class("zero", "null")
    assert session.labels.classes == ["empty", "null", "one"]
    assert sorted(labels(session).values()) == ["null", "null", "one"]
    session.undo()
    assert session.labels.classes == ["empty", "zero", "one"]
    session.rename_class("one", "zero")  # both become one
    assert session.labels.classes == ["empty", "zero"]
    assert set(labels(session).values()) == {"zero"}
    session.undo()
    assert sorted(labels(session).values()) == ["one", "zero", "zero"]
    assert session.labels.classes == ["empty", "zero", "one"]
    session.remove_class("zero")
    assert list(labels(session).values()) == ["one"]
    session = reopen(session)
    assert session.labels.classes == ["empty", "one"]
    session.undo()
    assert sorted(labels(session).values()) == ["one", "zero", "zero"]
    assert session.labels.classes == ["empty", "zero", "one"]  # each has its key again
    session.add_class("new")
    assert session.undo() == []  # of a decision without images
    assert session.labels.classes == ["empty", "zero", "one"]
    for name in ("", "  ", "nan", "-1", "x" * 201, "a\0"):
        with pytest.raises(UserError):
            session.add_class(name)
    with pytest.raises(UserError, match="empty"):
        session.add_class("empty")
    with pytest.raises(UserError, match="nothing"):
        session.rename_class("nothing", "something")
    session.close()


def test_the_sample_is_drawn_once_and_grows_with_the_folder(tmp_path: Path) -> None:
    folder = write_images(tmp_path / "digits", 80)
    session = open_session(folder)
    sample = {entry.path for entry in session.labels.entries if entry.in_sample}
    assert len(sample) == 20
    session = reopen(session)
    assert {entry.path for entry in session.labels.entries if entry.in_sample} == sample
    session.close()
    write_images(folder, 160)
    session = open_session(folder)
    later = {entry.path for entry in session.labels.entries if entry.in_sample}
    assert later > sample
    assert len(later) == 40
    session.close()
    for count in range(161, 201):  # one at a time
        write_images(folder, count)
        open_session(folder).close()
    session = open_session(folder)
    assert 42 <= sum(entry.in_sample for entry in session.labels.entries) <= 58  # 50 expected
    session.close()


@pytest.mark.parametrize(("images", "sampled"), [(8, 4), (24, 12), (40, 20), (60, 20), (100, 25)])
def test_small_folders_have_a_sample_that_can_measure(
    tmp_path: Path, images: int, sampled: int
) -> None:
    session = open_session(write_images(tmp_path / "digits", images))
    found = sum(entry.in_sample for entry in session.labels.entries)
    assert found in (sampled, sampled + 1)  # of 60, a third is rounded
    session.close()


def test_files_of_the_session_are_no_images(tmp_path: Path) -> None:
    folder = write_images(tmp_path / "digits", 6)
    with pytest.raises(UserError, match="--out"):
        open_session(folder, folder)
    session = open_session(folder, folder / "labels")
    session.set_label([0], "zero")
    write_class_folders(session, session.folder / "classes-1", "copy")
    session.close()
    session = open_session(folder, folder / "labels")
    assert len(session.labels.entries) == 6
    session.close()


def describe(session: Session) -> list[tuple[str, str, str]]:
    return [(Path(e.path).name, e.label, e.event) for e in session.labels.entries]


def test_images_may_go_and_come_back_as_they_were(tmp_path: Path) -> None:
    folder, elsewhere = write_images(tmp_path / "digits", 7), tmp_path / "elsewhere"
    session = open_session(folder)
    session.set_label([5], "one")
    session.set_label([6], "two")
    session.set_label([0, 1], "zero")
    session.set_aside([2], "none of these")
    session.set_aside([3], "not sure")
    before, files = describe(session), [session.find_file(number) for number in range(5)]
    session.close()
    elsewhere.mkdir()
    for file in files:
        file.rename(elsewhere / file.name)
    session = open_session(folder)
    assert len(list_table(session.journal.path)) == 2
    assert not any(entry.is_open for entry in session.labels.entries[:5])
    with pytest.raises(UserError, match="not there"):
        session.set_label([0], "one")
    session.rename_class("zero", "null")
    session.undo()
    session.undo()  # "not sure", of an image that is gone
    assert len(list_table(session.journal.path)) == 2
    session.rename_class("zero", "null")
    session.close()
    for file in files:
        (elsewhere / file.name).rename(file)
    session = open_session(folder)
    expected = [(name, label.replace("zero", "null"), event) for name, label, event in before]
    expected[3] = (before[3][0], "", "undone")
    assert describe(session) == expected
    assert len(list_table(session.journal.path)) == 6  # without the one that is no class
    session.close()


def test_a_decision_that_was_cut_off_is_there_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    """A process may be killed after any byte."""
    session = open_session(write_images(tmp_path / "digits", 7))
    session.set_label([5], "a")
    session.set_label([6], "b")
    path = session.journal.path
    session.set_label([0, 1], 'ze"\nro')
    session.set_label([3], "one")
    decisions: list[tuple[Callable[..., object], list[str]]] = [
        (Session.rename_class, ['ze"\nro', "null"]),
        (Session.undo, []),
        (Session.remove_class, ['ze"\nro']),
    ]
    for decide, names in decisions:
        start, before = path.stat().st_size, look(session)
        decide(session, *names)
        content, after = path.read_bytes(), look(session)
        assert before != after
        session.close()
        for length in range(start, len(content) + 1):
            path.write_bytes(content[:length])
            table = list_table(path)  # what train reads, also before the next start
            session = Session(session.collection, session.folder, "ada")
            assert look(session) == (after if length == len(content) else before), length
            assert [table.classes[label] for label in table.labels if label >= 0] == [
                entry.label for entry in session.labels.entries if entry.label
            ]
            if length < len(content):
                session.close()
    session.close()


def look(session: Session) -> tuple[list[tuple[str, str, str]], list[str]]:
    return describe(session), list(session.labels.classes)


def test_one_program_at_a_time(tmp_path: Path) -> None:
    folder = write_images(tmp_path / "digits", 3)
    session = open_session(folder)
    with pytest.raises(UserError, match="another"):
        open_session(folder)
    session.close()
    open_session(folder).close()


def test_labels_of_the_folder_count(tmp_path: Path) -> None:
    write_images(tmp_path / "data" / "unlabeled", 12)
    for name in ("zero", "one"):
        write_images(tmp_path / "data" / name, 2)
        write_images(tmp_path / "data" / "test" / name, 1)
    session = open_session(tmp_path / "data")
    assert session.labels.classes == ["one", "zero"]
    known = [entry for entry in session.labels.entries if entry.label]
    assert sorted((entry.part, entry.label) for entry in known) == [
        *[("test", "one"), ("test", "zero")],
        *[("train", "one")] * 2,
        *[("train", "zero")] * 2,
    ]
    assert not any(entry.in_sample for entry in known)
    assert session.undo() is None
    listing = list_table(session.journal.path)
    assert (len(listing.labeled), len(listing.unlabeled), len(listing.test)) == (4, 12, 2)
    session.close()


def test_which_folders_can_be_taught(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        find_collection(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="no images"):
        find_collection(tmp_path / "empty")
    write_images(tmp_path / "albums" / "2024", 2)
    write_images(tmp_path / "albums" / "2025", 2)
    assert [image.label for image in find_collection(tmp_path / "albums").images] == [""] * 4
    write_images(tmp_path / "flat", 3)
    (tmp_path / "flat" / "notes.txt").write_text("no image")
    assert len(find_collection(tmp_path / "flat").images) == 3
    write_images(tmp_path / "first" / "unlabeled", 3)
    assert len(find_collection(tmp_path / "first").images) == 3
    odd = b"\xff.png".decode(errors="surrogateescape")
    (tmp_path / "flat" / "0-0.png").rename(tmp_path / "flat" / odd)
    found = find_collection(tmp_path / "flat")
    assert (len(found.images), [path.name for path in found.unnamed]) == (2, [odd])


def test_two_domains_are_not_taught_as_one(tmp_path: Path) -> None:
    write_images(tmp_path / "both" / "source" / "zero", 2)
    write_images(tmp_path / "both" / "source" / "one", 2)
    write_images(tmp_path / "both" / "target", 4)
    with pytest.raises(UserError, match=r"two domains; teach one, for example .*both/target$"):
        find_collection(tmp_path / "both")
    assert len(find_collection(tmp_path / "both" / "target").images) == 4
    write_images(tmp_path / "albums" / "Source" / "2024", 2)
    write_images(tmp_path / "albums" / "Target", 2)
    assert len(find_collection(tmp_path / "albums").images) == 4
    labeled = (tmp_path / "both" / "source").rglob("*.png")
    rows = [f"{path},{path.parent.name},source" for path in labeled]
    rows += [f"{path},,target" for path in (tmp_path / "both" / "target").iterdir()]
    (tmp_path / "both.csv").write_text("\n".join(["path,label,domain", *rows]))
    with pytest.raises(UserError, match="two domains; give a table of one, without 'domain'"):
        find_collection(tmp_path / "both.csv")


def test_a_session_that_cannot_be_opened_keeps_nothing_open(tmp_path: Path) -> None:
    session = open_session(write_images(tmp_path / "digits", 8))
    session.close()
    content = session.journal.path.read_bytes()
    session.journal.path.write_bytes(content + b"," * 20 + b"\n")
    with pytest.raises(UserError, match="is not a row"):
        open_session(tmp_path / "digits")
    session.journal.path.write_bytes(content)
    open_session(tmp_path / "digits").close()  # it is not locked
