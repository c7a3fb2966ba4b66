"""What the page shows beside the image, as plain values."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from dualstudent.errors import escape_line
from dualstudent.teach.classroom import Classroom
from dualstudent.teach.estimate import forecast_labels
from dualstudent.teach.session import SET_ASIDE

_GOALS = (0.7, 0.8, 0.9, 0.95, 0.98)
_SHOWN = 24  # images of a class, and suspects
_LISTED = 20  # files that cannot be read


def describe_room(room: Classroom) -> dict[str, Any]:
    """Describe labels, model, features and trainings."""
    with room.lock:
        labels = room.session.labels
        entries = [entry for entry in labels.entries if not entry.is_gone]
        counts = Counter(entry.label for entry in entries if entry.label)
        answered = room.count_labels()
        return {
            "changes": room.changes,
            "name": escape_line(room.session.collection.source.name),
            "journal": escape_line(room.session.journal.path),
            "images": len(entries),
            "taking_part": len(room.taking_part),
            "labels": answered,
            "given": sum(counts.values()) - answered,
            "aside": Counter(entry.event for entry in entries if entry.event in SET_ASIDE),
            "classes": [{"name": name, "labels": counts[name]} for name in labels.classes],
            "can_undo": labels.can_revert,
            "unreadable": _describe_unreadable(room),
            "features": _describe_features(room),
            "trouble": room.trouble,
            "learning": room.is_learning,
            "model": _describe_model(room),
            "sample": sum(entry.in_sample for entry in entries),
            "left_out": sum(entry.in_sample and entry.event in SET_ASIDE for entry in entries),
            "history": [asdict(each) for each in room.history.points],
            "runs": room.training.list_finished(),
        }


def describe_images(room: Classroom, numbers: Sequence[int]) -> list[dict[str, Any]]:
    """Describe images: number, name, label, and what the model thinks."""
    said, entries = room.list_said(numbers), room.session.labels.entries
    return [
        {
            "number": number,
            "name": escape_line(room.session.find_file(number).name),
            "label": entries[number].label,
            "event": entries[number].event,
            "measures": entries[number].in_sample,
            "predicted": said[number].label if number in said else "",
            "confidence": said[number].confidence if number in said else None,
        }
        for number in numbers
    ]


def describe_class(room: Classroom, name: str) -> dict[str, Any]:
    """Describe the images of a class: labeled, surest and least sure ones."""
    with room.lock:
        entries = room.session.labels.entries
        labeled = [n for n, e in enumerate(entries) if e.label == name and not e.is_gone]
        seeming = room.find_seeming(name)
        return {
            "name": name,
            "count": len(seeming),
            "labeled": describe_images(room, labeled[-_SHOWN:][::-1]),
            "surest": describe_images(room, seeming[:_SHOWN]),
            "least": describe_images(room, seeming[_SHOWN:][-_SHOWN:][::-1]),
        }


def describe_suspects(room: Classroom) -> list[dict[str, Any]]:
    """Describe labeled images whose label seems to be another one, the surest first."""
    with room.lock:
        answer, entries = room.answer, room.session.labels.entries
        if answer is None:
            return []
        found = [(number, answer.classes[place]) for number, place in answer.suspects]
        mine = [(n, name) for n, name in found if entries[n].label not in ("", name)][:_SHOWN]
        described = describe_images(room, [number for number, _ in mine])
        return [each | {"seems": name} for each, (_, name) in zip(described, mine, strict=True)]


def describe_training(room: Classroom) -> dict[str, Any] | None:
    """Describe the thorough training that was begun last; None without one."""
    training = room.training.look()
    if training is None:
        return None
    return asdict(training) | {"line": escape_line(training.line)}


def _describe_unreadable(room: Classroom) -> dict[str, Any]:
    unnamed = room.session.collection.unnamed
    files = [
        [escape_line(room.session.find_file(number).name), reason]
        for number, reason in list(room.unreadable.items())[:_LISTED]
    ]
    files += [[escape_line(path.name), "its name is not UTF-8; rename it"] for path in unnamed]
    return {"count": len(room.unreadable) + len(unnamed), "files": files[:_LISTED]}


def _describe_features(room: Classroom) -> dict[str, Any] | None:
    found = room.features
    if found is None:
        return None
    return {"name": found.name, "done": found.done, "total": found.total}


def _describe_model(room: Classroom) -> dict[str, Any] | None:
    """Describe what was learned last; None before there is a model."""
    answer = room.answer
    if answer is None or len(answer.predicted) == 0:
        return None
    points = room.history.points
    reached = answer.estimate.high if answer.estimate else 1.0  # perhaps; so it is no goal
    goal = next((goal for goal in _GOALS if goal > reached), None)
    more = forecast_labels(points, goal) if goal else None
    return {
        "labels": answer.labels,
        "seconds": round(answer.seconds, 2),
        "estimate": answer.estimate and asdict(answer.estimate),
        "changed": _count_changed(room),
        "trusted": _count_trusted(room),
        "forecast": more and {"goal": goal, "low": more[0], "high": more[1]},
        "suspects": len(describe_suspects(room)),
    }


def _count_changed(room: Classroom) -> dict[str, int] | None:
    """Count the predictions that the last labels have changed."""
    now, before = room.answer, room.before
    if now is None or before is None or len(before.predicted) == 0:
        return None
    names_now = dict(zip(now.numbers.tolist(), np.array(now.classes)[now.predicted], strict=True))
    names_before = np.array(before.classes)[before.predicted]
    pairs = zip(before.numbers.tolist(), names_before, strict=True)
    changed = sum(names_now.get(number, name) != name for number, name in pairs)
    return {"labels": now.labels - before.labels, "images": int(changed), "of": len(names_now)}


def _count_trusted(room: Classroom) -> dict[str, Any]:
    """Count the unlabeled images whose prediction is trusted."""
    answer = room.answer
    assert answer is not None
    entries = room.session.labels.entries
    rule = answer.trust
    unlabeled = np.array([not entries[number].label for number in answer.numbers.tolist()])
    count = 0 if rule is None else int((unlabeled & (answer.confidence >= rule.trust)).sum())
    return {
        "count": count,
        "of": int(unlabeled.sum()),
        "precision": room.precision,
        "at_least": rule and rule.at_least,
        "known": rule is not None,
    }
