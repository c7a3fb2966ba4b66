"""Exchange with other programs: Label Studio's JSON, and CSV.

https://labelstud.io/guide/task_format: a list of tasks, each with the address of an image, people's
annotations, and predictions. The label config that fits is

    <View><Image name="image" value="$image"/>
    <Choices name="choice" toName="image">…</Choices></View>
"""

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, TypeAlias
from urllib.parse import parse_qs, quote, unquote, urlsplit

from dualstudent.data.images.tables import (
    EVENT_NAME,
    LABEL_NAMES,
    PATH_NAMES,
    escape_cell,
    unescape_cell,
)
from dualstudent.errors import UserError
from dualstudent.teach.labels import LABELED, REMOVED, SKIPPED, UNDONE, Entry
from dualstudent.teach.session import SET_ASIDE, Session

_SERVED = "/data/local-files/?d="  # how Label Studio serves files of a folder
_ANSWER = "answer"  # column, or field of a task, that says why an image has no label


_Decision: TypeAlias = tuple[str, str]  # label and event


@dataclass(frozen=True)
class Said:
    """What the model says about an image."""

    label: str
    confidence: float


@dataclass(frozen=True)
class Imported:
    """What was imported.

    Attributes:
        labels: number of images that have a label by it.
        unknown: names of images that are not there, or of which there are several.
    """

    labels: int
    unknown: tuple[str, ...]


def export_tasks(session: Session, said: Mapping[int, Said], version: str) -> str:
    """Write all images as tasks of Label Studio, with labels and predictions.

    Args:
        session: the labels.
        said: number of an image → what the model says about it.
        version: of the model.
    """
    tasks = []
    for number, entry in enumerate(session.labels.entries):
        if entry.is_gone:
            continue
        address = _SERVED + quote(_name_for_others(session, number))
        task: dict[str, Any] = {"id": number + 1, "data": {"image": address, "path": entry.path}}
        if entry.event in (*SET_ASIDE, UNDONE) and not entry.label:
            task["data"][_ANSWER] = entry.event
        if entry.label or entry.event in SET_ASIDE:
            answer = [_choose(entry.label)] if entry.label else []
            task["annotations"] = [{"result": answer, "was_cancelled": not entry.label}]
        if number in said:
            guess = said[number]
            task["predictions"] = [
                {
                    "model_version": version,
                    "score": round(guess.confidence, 6),
                    "result": [_choose(guess.label)],
                }
            ]
        tasks.append(task)
    return json.dumps(tasks, ensure_ascii=False, indent=1)


def export_table(session: Session, said: Mapping[int, Said]) -> str:
    """Write path, label, answer, prediction and confidence of all images as CSV."""
    text = io.StringIO(newline="")
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["path", "label", "part", _ANSWER, "predicted", "confidence"])
    for number, entry in enumerate(session.labels.entries):
        if entry.is_gone:
            continue
        guess = said.get(number)
        cells = [str(session.find_file(number)), entry.label, entry.part, entry.event]
        cells += [guess.label, f"{guess.confidence:.6f}"] if guess else ["", ""]
        table.writerow(map(escape_cell, cells))
    return text.getvalue()


def import_labels(session: Session, content: bytes) -> Imported:
    """Import labels from JSON of Label Studio (also JSON-MIN) or a CSV file, as one decision.

    Images are found by path, or else by the longest end of it that any image has, if only one has.
    Labels, and why there is none, are taken over; an image of which nothing is said stays as it is.

    Raises:
        UserError: if the content is neither, or holds no label.
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError("the file is not UTF-8 text; give JSON of Label Studio, or CSV") from error
    read = _read_tasks if text.lstrip().startswith(("[", "{")) else _read_rows
    answers, unknown, find = dict[int, _Decision](), list[str](), _Finder(session)
    for names, decision in read(text):
        number = next((found for name in names if (found := find(name)) is not None), None)
        if number is None:
            unknown.append(names[0] if names else "a task without an image")
        else:
            answers[number] = decision
    if not answers and not unknown:
        raise UserError("the file holds no label")
    entries = session.labels.entries
    new = [
        (number, label, event)
        for number, (label, event) in answers.items()
        if (entries[number].label != label if label else not _is_same(entries[number], event))
    ]
    if new:
        session.set_many(new)
    return Imported(sum(bool(label) for label, _ in answers.values()), tuple(unknown))


def _is_same(entry: Entry, event: str) -> bool:
    """Whether an image without a label is as the event would leave it."""
    return not entry.label and (entry.is_open if event == UNDONE else entry.event == event)


def _decide(label: str, answer: str) -> _Decision | None:
    """Return label and event; None if nothing is said."""
    if label:
        return label, LABELED
    if answer == REMOVED:  # in a journal
        answer = UNDONE
    return ("", answer) if answer in (*SET_ASIDE, UNDONE) else None


def _name_for_others(session: Session, number: int) -> str:
    """Name an image from the folder that holds all, without "..", which nobody would serve."""
    path, root = session.find_file(number), session.collection.source.parent
    return path.relative_to(root if path.is_relative_to(root) else path.anchor).as_posix()


class _Finder:
    """Finds images by path, relative or absolute, or by the end of a path."""

    def __init__(self, session: Session) -> None:
        self._exact, self._ends = dict[str, int](), dict[str, int | None]()
        for number, entry in enumerate(session.labels.entries):
            if entry.is_gone:
                continue
            path = PurePosixPath(session.find_file(number))
            self._exact |= {entry.path: number, str(path): number}
            for length in range(1, len(path.parts)):
                end = "/".join(path.parts[-length:])
                self._ends[end] = None if end in self._ends else number

    def __call__(self, name: str) -> int | None:
        if name in self._exact:
            return self._exact[name]
        parts = [part for part in PurePosixPath(name).parts if part not in ("/", "..", ".")]
        ends = ("/".join(parts[start:]) for start in range(len(parts)))
        return next((self._ends[end] for end in ends if end in self._ends), None)


def _choose(label: str) -> dict[str, Any]:
    return {
        "from_name": "choice",
        "to_name": "image",
        "type": "choices",
        "value": {"choices": [label]},
    }


def _read_tasks(text: str) -> Iterator[tuple[list[str], _Decision]]:
    """Yield possible names of an image and what was decided about it."""
    try:
        tasks = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"the file is not JSON: {error}") from error
    for task in tasks if isinstance(tasks, list) else [tasks]:
        if not isinstance(task, dict):
            raise UserError("the file is no list of tasks, as Label Studio exports them")
        data = task["data"] if isinstance(task.get("data"), dict) else task
        names = [str(data[key]) for key in ("path", *PATH_NAMES) if isinstance(data.get(key), str)]
        decision = _read_decision(task, str(data.get(_ANSWER) or ""))
        if decision is not None:
            yield [each for name in names for each in (name, *_read_address(name))], decision


def _read_decision(task: Mapping[str, Any], answer: str) -> _Decision | None:
    """Return what the last annotation says, or if it is cancelled or missing, our own answer."""
    annotations = task.get("annotations", task.get("completions"))
    if isinstance(annotations, Sequence) and annotations:
        last = annotations[-1]
        if not isinstance(last, dict):
            return None
        for result in last.get("result") or []:
            value = result.get("value") if isinstance(result, dict) else None
            choices = value.get("choices") if isinstance(value, dict) else None
            if isinstance(choices, list) and choices and isinstance(choices[0], str):
                return _decide(choices[0], "")
        skipped = SKIPPED if last.get("was_cancelled") else ""
        return _decide("", answer if skipped and answer in SET_ASIDE else skipped)
    for key in ("choice", *LABEL_NAMES):  # JSON-MIN
        if isinstance(task.get(key), str):
            return _decide(task[key], answer)
    return _decide("", answer)


def _read_address(address: str) -> list[str]:
    """Return names of the file that an address may mean, without the number of an upload."""
    parts = urlsplit(address)
    served = parse_qs(parts.query).get("d", [unquote(parts.path)])[0]
    path = PurePosixPath(served)
    uploaded = path.name.partition("-")[2] if "/upload/" in served else ""
    return [served, *([uploaded] if uploaded else [])]


def _read_rows(text: str) -> Iterator[tuple[list[str], _Decision]]:
    rows = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        columns = {name.strip().lower(): name for name in rows.fieldnames or []}
        path, label = (
            next((columns[name] for name in names if name in columns), None)
            for names in (PATH_NAMES, LABEL_NAMES)
        )
        if path is None or label is None:
            raise UserError("the file has no columns path and label, and is no JSON either")
        answer = columns.get(_ANSWER, columns.get(EVENT_NAME, label))
        for row in rows:
            cells = (unescape_cell((row[column] or "").strip()) for column in (label, answer))
            if row[path] and (decision := _decide(*cells)):
                yield [unescape_cell(row[path])], decision
    except csv.Error as error:
        raise UserError(f"the file is not a table: {error} (line {rows.line_num})") from error
