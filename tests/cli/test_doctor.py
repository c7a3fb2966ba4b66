from functools import partial
from pathlib import Path

import pytest
from rich.console import Console

from dualstudent.cli.doctor import build_reach_table
from dualstudent.doctor import Diagnosis, Reach
from tests.support.command import Command
from tests.support.recipes import SMALL


def test_table_has_a_row_per_term_and_shows_what_arrives_elsewhere() -> None:
    reach = [
        Reach("student1", "pull", 0.5, {"student1": {"trunk": 2.0}, "t": {"trunk": 0.25}}, True),
        Reach("student2", "pull", 0.0, {}, True),
    ]
    console = Console(width=120)
    with console.capture() as capture:
        console.print(build_reach_table(Diagnosis(reach=reach)))
    rows = [line.split() for line in capture.get().splitlines()[1:]]
    assert rows == [
        ["student1", "pull", "0.5", "2", "·", "·", "t", "trunk", "0.25"],
        ["student2", "pull", "off", "·", "·", "·", "·"],
    ]


def test_table_names_the_domains_that_a_term_depends_on() -> None:
    domains = {"classification": {"source"}, "pull": {"target", "source"}, "off": set[str]()}
    reach = [
        Reach("student", term, 1.0, {"student": {"trunk": 2.0}}, True, frozenset(found))
        for term, found in domains.items()
    ]
    console = Console(width=120)
    with console.capture() as capture:
        console.print(build_reach_table(Diagnosis(reach=reach)))
    heading, *rows = (line.split() for line in capture.get().splitlines())
    assert heading[-2:] == ["domain", "elsewhere"]
    assert [row[-2] for row in rows] == ["source", "both", "·"]


@pytest.fixture
def doctor(command: Command) -> Command:
    return partial(command, "doctor", *(part for change in SMALL for part in ("--set", change)))


def test_command_shows_every_term_of_a_healthy_method(doctor: Command) -> None:
    changes = ("--set", "method.name=mean-teacher", "--set", "method.logit_distance_weight=0.0")
    code, shown, _ = doctor("digits", *changes, "--steps", "2")
    assert code == 0
    lines = [line.split() for line in shown.splitlines()]
    assert [line[1] for line in lines if line[:1] == ["student"] and line[1] != "term"] == [
        "classification",
        "logit_distance",
        "consistency",
    ]
    assert ["student", "logit_distance", "off", "·", "·", "·", "·"] in lines
    assert "off: logit_distance of student: " in shown
    assert lines[-1] == ["healthy", "in", "4", "steps;", "watched:", "student,", "teacher"]


STAGED = """
extends = "digits"

[[stages]]
name = "labels"
method = { name = "supervised", students = 2 }

[[stages]]
name = "both"
"""


def test_command_checks_every_stage(tmp_path: Path, doctor: Command) -> None:
    recipe = tmp_path / "staged.toml"
    recipe.write_text(STAGED)
    code, shown, _ = doctor(recipe, "--steps", "2")
    assert code == 0
    titles = [line for line in shown.splitlines() if line.startswith("stage ")]
    assert [title.split(":")[0] for title in titles] == [
        "stage labels, supervised",
        "stage both, dual-student",
    ]
    assert shown.count("healthy in ") == 2


def test_command_lists_findings_and_fails(monkeypatch: pytest.MonkeyPatch, doctor: Command) -> None:
    found = Diagnosis(findings=["consistency of student does not reach student"])
    monkeypatch.setattr("dualstudent.doctor.examine", lambda recipe, steps: found)
    code, shown, messages = doctor()  # a recipe is the default
    assert (code, messages) == (1, f"wrong: {found.findings[0]}\n")
    assert "healthy" not in shown


def test_command_calls_a_mistake_a_mistake(doctor: Command) -> None:
    code, _, messages = doctor("--set", "data.labels=55")
    assert code == 2
    assert "multiple of 10" in messages
