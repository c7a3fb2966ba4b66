"""Labels that come in while the program is killed."""

import os
import random
from functools import partial
from pathlib import Path

from dualstudent.teach.session import Session
from tests.support.teaching import open_session, write_images
from tests.torture.children import run_child

IMAGES = 12
LABELS = ("cat", 'dog, "the\nsecond"', "Ö")


def label_endlessly(folder: Path, said: Path) -> None:
    """Give labels, some at a time, and note them as soon as they are said to be saved."""
    session, draw = open_session(folder), random.Random(0)
    log = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    while True:
        session.set_label(draw.sample(range(IMAGES), 3), draw.choice(LABELS))
        os.write(log, (describe(session) + "\0").encode())


def describe(session: Session) -> str:
    return repr([entry.label for entry in session.labels.entries])


def find_loss(folder: Path, seconds: float) -> str:
    """Kill it after some time; returns what is wrong with the labels then, or nothing."""
    said = folder.with_name("said")
    said.unlink(missing_ok=True)
    run_child(partial(label_endlessly, folder, said), seconds)
    session = open_session(folder)
    found = describe(session)
    rows = sum(1 for _ in session.journal.read())
    session.close()
    states = said.read_text().split("\0")[:-1] if said.exists() else []
    if rows < IMAGES:
        return f"{rows} rows"
    # The last decision may be on disk without having been said; it is one more, not one less.
    if states and found != states[-1]:
        session = open_session(folder)
        session.undo()
        before = describe(session)
        session.close()
        if before != states[-1]:
            return f"{found} instead of {states[-1]}"
    return ""


def make_folder(place: Path) -> Path:
    return write_images(place / "digits", IMAGES)
