"""Sessions, and a learner that answers when it is told to."""

from collections.abc import Callable
from pathlib import Path

from PIL import Image

from dualstudent.data.sources.bundled import load_digits_8x8
from dualstudent.teach.classroom import Classroom
from dualstudent.teach.images import find_collection
from dualstudent.teach.learning import Question
from dualstudent.teach.session import Session
from dualstudent.teach.worker import Report, Task


def write_images(folder: Path, count: int = 12) -> Path:
    """``count`` real digits of 8 × 8 pixels; the name of each begins with its class."""
    digits = load_digits_8x8("train")
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        name = f"{digits.labels[number].item()}-{number}.png"
        Image.fromarray(digits.pixels[number, 0].numpy()).save(folder / name)
    return folder


def open_session(folder: Path, out: Path | None = None) -> Session:
    return Session(find_collection(folder), out or folder.with_name(f"{folder.name}-labels"), "ada")


class SilentLearner:
    """Notes what it is asked, and answers nothing."""

    def __init__(self) -> None:
        self.questions: list[Question] = []
        self.task: Task | None = None
        self.report: Callable[[Report], None] = lambda report: None

    def start(self, task: Task, report: Callable[[Report], None]) -> "SilentLearner":
        self.task, self.report = task, report
        return self

    def ask(self, question: Question) -> None:
        self.questions.append(question)

    def close(self) -> None:
        pass


def open_room(folder: Path, learner: SilentLearner | None = None) -> Classroom:
    return Classroom(open_session(folder), start=(learner or SilentLearner()).start)
