"""The session and the model together: what to ask next, and what was learned so far."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

import torch

from dualstudent.errors import escape_line
from dualstudent.generators import make_generator
from dualstudent.teach.exchange import Said
from dualstudent.teach.history import History
from dualstudent.teach.labels import LISTED, Entry
from dualstudent.teach.learning import Answer, Question
from dualstudent.teach.questions import arrange_questions
from dualstudent.teach.session import Session
from dualstudent.teach.thorough import ThoroughTraining
from dualstudent.teach.worker import EVERY, MOST, Failed, FeaturesDone, Report, Task, Worker

_GIVEN = 5000  # images that come with a label and take part
_LEASE = 60.0  # seconds that an image is shown in one tab only
_REST = 1.5  # seconds without a decision, after which even few labels are learned


class Learning(Protocol):
    """What answers questions: a :class:`~dualstudent.teach.worker.Worker`."""

    def ask(self, question: Question) -> None:
        """Ask; the answer is reported later."""

    def close(self) -> None:
        """End."""


class Classroom:
    """Everything behind the page; safe to use from several threads.

    Args:
        session: the labels.
        precision: wanted share of right answers among the trusted ones.
        start: starts what answers questions; default: a process of its own.
        options: further arguments of ``dualstudent train`` for thorough trainings.

    Attributes:
        answer: what was learned last; None before.
        before: what was learned before that.
        features: how far the features are; None before the first.
        unreadable: number of an image → why it cannot be read.
        changes: grows whenever there is something new to show.
    """

    def __init__(
        self,
        session: Session,
        precision: float = 0.95,
        start: Callable[[Task, Callable[[Report], None]], Learning] = Worker,
        options: tuple[str, ...] = (),
    ) -> None:
        self.session, self.precision = session, precision
        self.training = ThoroughTraining(session, options)
        self.answer: Answer | None = None
        self.before: Answer | None = None
        self.features: FeaturesDone | None = None
        self._failure, self._fault, self.changes = "", "", 0
        self.unreadable: dict[int, str] = {}
        self.history = History(session.folder / "history.jsonl")
        self.lock = threading.RLock()
        self._leases: dict[str, tuple[float, list[int]]] = {}
        self._asked, self._learned_from, self._changed_at = -1, 0, 0.0
        self._asked_labels: dict[int, int] = {}  # version → number of labels
        self.taking_part = self._draw_taking_part()
        paths = tuple(session.find_file(number) for number in self.taking_part)
        task = Task(tuple(self.taking_part), paths, session.collection.trunk)
        self._worker = start(task, self._note)
        self.learn_if_due(at_once=True)

    def close(self) -> None:
        """End what was started; a thorough training can be resumed. The session stays open."""
        self.training.stop()
        self._worker.close()

    @property
    def trouble(self) -> str:
        """Why nothing is learned, or was when it was tried last; empty if all is well."""
        return self._failure or self._fault

    @property
    def is_learning(self) -> bool:
        """Whether there are labels that the model has not learned from yet."""
        seen = self.answer.version if self.answer else -1
        return not self.trouble and seen != self.session.version

    def count_labels(self) -> int:
        """Count the labels that somebody gave, without those that the images came with."""
        return sum(1 for entry in self.session.labels.entries if _is_answered(entry))

    @contextmanager
    def change(self) -> Iterator[Session]:
        """Change the labels in the block; afterwards they are learned when it is time."""
        yield self.session
        with self.lock:
            self._changed_at = time.monotonic()
            self.changes += 1
        self.learn_if_due()

    def learn_if_due(self, at_once: bool = False) -> None:
        """Let the model learn, if there are enough new labels or nobody labels just now."""
        with self._going_on():
            version = self.session.version
            if version == self._asked:
                return
            labels = self.count_labels()
            rests = time.monotonic() - self._changed_at > _REST
            if at_once or rests or abs(labels - self._learned_from) >= EVERY:
                question = self._make_question(version)
                self._asked_labels[version] = len(question.labels)
                self._worker.ask(question)
                self._asked, self._learned_from = version, labels

    def note_unreadable(self, number: int, reason: str) -> None:
        """Note that an image cannot be read; nobody is asked for it again."""
        with self.lock:
            self.unreadable[number] = reason
            self.changes += 1

    def choose_next(
        self, tab: str, count: int, shown: Iterable[int], label: str = "", event: str = ""
    ) -> list[int]:
        """Choose the next images to show.

        Args:
            tab: names a tab of a browser; two tabs do not show the same images.
            count: of images.
            shown: images that the tab has already, which are not repeated.
            label: a class, to be asked only for images that seem to be of it; empty for all.
            event: such as "skipped", to be asked again for those images; empty for new ones.
        """
        with self.lock:
            now = time.monotonic()
            leases = self._leases.items()
            self._leases = {k: v for k, v in leases if now - v[0] < _LEASE and k != tab}
            own = list(shown)
            held = {number for _, numbers in self._leases.values() for number in numbers}
            # If only images of other tabs are left, these: a closed tab still holds some.
            found = self._find_questions({*held, *own}, count, label, event) or (
                self._find_questions(set(own), count, label, event)
            )
            self._leases[tab] = (now, [*own, *found])
            return found

    def list_said(self, numbers: Iterable[int] | None = None) -> dict[int, Said]:
        """List what the model says about images; default: about all that it knows."""
        answer = self.answer
        if answer is None or len(answer.predicted) == 0:
            return {}
        places = {number: place for place, number in enumerate(answer.numbers.tolist())}
        wanted = places if numbers is None else (n for n in numbers if n in places)
        names, classes = answer.predicted, answer.classes
        return {
            number: Said(classes[names[place]], float(answer.confidence[place]))
            for number in wanted
            if (place := places[number]) is not None
        }

    def find_seeming(self, label: str) -> list[int]:
        """Find unlabeled images that seem to be of a class, the surest first.

        Without those that measure the model, so that nobody sees there what it thinks of them.
        """
        entries = self.session.labels.entries
        said = self.list_said()
        mine = [n for n, each in said.items() if each.label == label and self._is_askable(n)]
        return sorted(
            (number for number in mine if not entries[number].in_sample),
            key=lambda number: -said[number].confidence,
        )

    def _is_askable(self, number: int) -> bool:
        entry = self.session.labels.entries[number]
        return entry.is_open and entry.part == "train" and self._is_shown(number)

    def _is_shown(self, number: int) -> bool:
        return not self.session.labels.entries[number].is_gone and number not in self.unreadable

    def _find_questions(self, taken: set[int], count: int, label: str, event: str) -> list[int]:
        if label or event:
            wanted = self._list_wanted(label, event)
            return [number for number in wanted if number not in taken][:count]
        return self._arrange(taken, count)

    def _list_wanted(self, label: str, event: str) -> list[int]:
        """List images that seem to be of a class, the least sure first, or that had an event."""
        if label:
            return self.find_seeming(label)[::-1]
        entries = self.session.labels.entries
        return [n for n, e in enumerate(entries) if e.event == event and self._is_shown(n)]

    def _arrange(self, taken: set[int], count: int) -> list[int]:
        """Arrange the next questions: chosen ones, and others at random if there are too few."""
        entries, order = self.session.labels.entries, self.answer.order if self.answer else ()
        free = [n for n in self.taking_part if self._is_askable(n) and n not in taken]
        others = {number for number in free if not entries[number].in_sample}
        chosen = dict.fromkeys(number for number in order if number in others)
        rest = [number for number in free if number in others and number not in chosen]
        sample = [number for number in free if number not in others]
        seen = [e.in_sample for e in entries if e.event != LISTED]
        seen += [entries[number].in_sample for number in taken if self._is_askable(number)]
        return arrange_questions([*chosen, *rest], sample, len(seen), sum(seen), count)

    def _make_question(self, version: int) -> Question:
        labels = self.session.labels
        places = {name: place for place, name in enumerate(labels.classes)}
        known = {
            number: places[entry.label]
            for number in self.taking_part
            if (entry := labels.entries[number]).label and not entry.is_gone
        }
        sample = frozenset(number for number in known if labels.entries[number].in_sample)
        askable = frozenset(
            number
            for number in self.taking_part
            if self._is_askable(number) and not labels.entries[number].in_sample
        )
        classes = tuple(labels.classes)
        return Question(version, known, classes, sample, askable, self.precision)

    @contextmanager
    def _going_on(self) -> Iterator[None]:
        """Show on the page what goes wrong in the block; labels are saved, it is tried again."""
        with self.lock:
            fault = ""
            try:
                yield
            except Exception as error:  # whatever it is, nobody else would tell the user
                fault = escape_line(f"this was not learned ({type(error).__name__}: {error})")
            if fault != self._fault:
                self._fault = fault
                self.changes += 1

    def _note(self, report: Report) -> None:
        """Take in what the other process has found."""
        with self._going_on():
            self.changes += 1
            if isinstance(report, Failed):
                self._failure = report.reason
            elif isinstance(report, FeaturesDone):
                self.features = report
                self.unreadable |= report.unreadable
            else:
                if self.answer is not None and report.labels != self.answer.labels:
                    self.before = self.answer
                self.answer = report
                if self._asked_labels.get(report.version) == report.labels:
                    self.history.add(report.estimate)  # else features of some are missing

    def _draw_taking_part(self) -> list[int]:
        """Draw the images that take part: labeled ones, then the sample and others at random."""
        entries = self.session.labels.entries
        usable = [n for n, e in enumerate(entries) if not e.is_gone and e.part == "train"]
        order = torch.randperm(len(usable), generator=make_generator(0, "taking part")).tolist()
        shuffled = [usable[place] for place in order]
        answered = [n for n in shuffled if _is_answered(entries[n])]
        given = [n for n in shuffled if entries[n].label and not _is_answered(entries[n])][:_GIVEN]
        sample = [n for n in shuffled if entries[n].in_sample]
        others = [n for n in shuffled if not entries[n].label]
        wanted = list(dict.fromkeys([*answered, *given, *sample, *others]))[:MOST]
        # Labels first, so that a second start knows them all with the first features.
        taken = set(wanted)
        labeled = dict.fromkeys([*answered, *given])
        return [*labeled, *(n for n in shuffled if n in taken and n not in labeled)]


def _is_answered(entry: Entry) -> bool:
    return bool(entry.label) and entry.event != LISTED and not entry.is_gone
