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
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from dualstudent.data.images.tables import (
    GONE,
    LABEL_NAMES,
    NONE_OF_THESE,
    PATH_NAMES,
    escape_cell,
    unescape_cell,
)
from dualstudent.errors import UserError
from dualstudent.teach.labels import LABELED, SKIPPED
from dualstudent.teach.session import Session

_SERVED = "/data/local-files/?d="  # how Label Studio serves files of a folder


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
        if entry.event == GONE:
            continue
        task: dict[str, Any] = {
            "id": number + 1,
            "data": {"image": _SERVED + quote(entry.path), "path": entry.path},
        }
        if entry.label or entry.event in (SKIPPED, NONE_OF_THESE):
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
    """Write path, label, event, prediction and confidence of all images as CSV."""
    text = io.StringIO(newline="")
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["path", "label", "part", "answer", "predicted", "confidence"])
    for number, entry in enumerate(session.labels.entries):
        if entry.event == GONE:
            continue
        guess = said.get(number)
        cells = [str(session.find_file(number)), entry.label, entry.part, entry.event]
        cells += [guess.label, f"{guess.confidence:.6f}"] if guess else ["", ""]
        table.writerow(map(escape_cell, cells))
    return text.getvalue()


def import_labels(session: Session, content: bytes) -> Imported:
    """Import labels from JSON of Label Studio (also JSON-MIN) or a CSV file, as one decision.

    Images are found by path, or else by the longest end of it that any image has, if only one has.

    Raises:
        UserError: if the content is neither, or holds no label.
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError("the file is not UTF-8 text; give JSON of Label Studio, or CSV") from error
    read = _read_tasks if text.lstrip().startswith(("[", "{")) else _read_rows
    answers, unknown, find = dict[int, str](), list[str](), _Finder(session)
    for names, label in read(text):
        number = next((found for name in names if (found := find(name)) is not None), None)
        if number is None:
            unknown.append(names[0] if names else "a task without an image")
        else:
            answers[number] = label
    if not answers and not unknown:
        raise UserError("the file holds no label")
    entries = session.labels.entries
    new = [
        (number, label, LABELED if label else SKIPPED)
        for number, label in answers.items()
        if entries[number].label != label or not label
    ]
    if new:
        session.set_many(new)
    return Imported(sum(map(bool, answers.values())), tuple(unknown))


class _Finder:
    """Finds images by path, relative or absolute, or by the end of a path."""

    def __init__(self, session: Session) -> None:
        self._exact, self._ends = dict[str, int](), dict[str, int | None]()
        for number, entry in enumerate(session.labels.entries):
            if entry.event == GONE:
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


def _read_tasks(text: str) -> Iterator[tuple[list[str], str]]:
    """Yield possible names of an image and its label; empty if it was skipped."""
    try:
        tasks = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"the file is not JSON: {error}") from error
    for task in tasks if isinstance(tasks, list) else [tasks]:
        if not isinstance(task, dict):
            raise UserError("the file is no list of tasks, as Label Studio exports them")
        data = task["data"] if isinstance(task.get("data"), dict) else task
        names = [str(data[key]) for key in ("path", *PATH_NAMES) if isinstance(data.get(key), str)]
        label = _read_label(task)
        if label is not None:
            yield [each for name in names for each in (name, *_read_address(name))], label


def _read_label(task: Mapping[str, Any]) -> str | None:
    """Return the label of the last annotation, empty if it was cancelled; None without one."""
    annotations = task.get("annotations", task.get("completions"))
    if isinstance(annotations, Sequence) and annotations:
        last = annotations[-1]
        if not isinstance(last, dict):
            return None
        for result in last.get("result") or []:
            value = result.get("value") if isinstance(result, dict) else None
            choices = value.get("choices") if isinstance(value, dict) else None
            if isinstance(choices, list) and choices and isinstance(choices[0], str):
                return str(choices[0])
        return "" if last.get("was_cancelled") else None
    for key in ("choice", *LABEL_NAMES):  # JSON-MIN
        if isinstance(task.get(key), str):
            return str(task[key])
    return None


def _read_address(address: str) -> list[str]:
    """Return names of the file that an address may mean, without the number of an upload."""
    parts = urlsplit(address)
    served = parse_qs(parts.query).get("d", [unquote(parts.path)])[0]
    path = PurePosixPath(served)
    uploaded = path.name.partition("-")[2] if "/upload/" in served else ""
    return [served, *([uploaded] if uploaded else [])]


def _read_rows(text: str) -> Iterator[tuple[list[str], str]]:
    rows = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        columns = {name.strip().lower(): name for name in rows.fieldnames or []}
        path, label = (
            next((columns[name] for name in names if name in columns), None)
            for names in (PATH_NAMES, LABEL_NAMES)
        )
        if path is None or label is None:
            raise UserError("the file has no columns path and label, and is no JSON either")
        for row in rows:
            name = unescape_cell((row[label] or "").strip())
            if name and row[path]:
                yield [unescape_cell(row[path])], name
    except csv.Error as error:
        raise UserError(f"the file is not a table: {error} (line {rows.line_num})") from error
