"""A comparison as a user runs it: real processes, real digits, from the command to the table."""

import contextlib
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from sklearn.linear_model import LogisticRegression

from dualstudent import UserError, compare, prepare
from tests.support.command import Command
from tests.support.csv_rows import rows_of
from tests.support.html_page import Page
from tests.support.recipes import SMALL, small_recipe

OPTIONS = ("--methods", "supervised,pi", "--seeds", "2", "--labels", "50,100")
SHORT = (*SMALL, "schedule.epochs=1")
CHANGES = tuple(word for change in SHORT for word in ("--set", change))


def stamps(folder: Path) -> dict[str, int]:
    return {p.parent.name: p.stat().st_mtime_ns for p in folder.glob("runs/*/result.json")}


def interrupt(words: list[str], out: Path) -> str:
    """Stop the command after its first finished run; return its message."""
    process = subprocess.Popen(
        [sys.executable, "-m", "dualstudent", *words], stderr=subprocess.PIPE, text=True
    )
    while not stamps(out) and process.poll() is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.1)
    process.send_signal(signal.SIGINT)
    _, message = process.communicate()
    assert process.returncode == 128 + signal.SIGINT, message
    return message


@pytest.mark.slow
def test_an_interrupted_comparison_continues_and_equals_one_that_was_not(
    tmp_path: Path, command: Command
) -> None:
    out = tmp_path / "out"
    words = ["compare", "digits", *OPTIONS, *CHANGES, "--out", str(out)]
    message = interrupt(words, out)
    assert f"continue with: dualstudent {' '.join(words)}" in " ".join(message.split())
    before = stamps(out)
    assert 0 < len(before) < 8
    assert not (out / "table.md").exists()

    code, shown, messages = command(*words)
    assert code == 0, messages
    after = stamps(out)
    assert len(after) == 8
    assert {name: after[name] for name in before} == before

    rows = rows_of(out / "table.csv")
    assert [(row["labels"], row["method"]) for row in rows] == [
        (f"{labels} labels", method) for labels in (50, 100) for method in ("supervised", "pi")
    ]
    assert [row["p_value"] == "" for row in rows].count(True) == 2  # the best of each column
    table = (out / "table.md").read_text()
    assert f"`dualstudent {' '.join(words)}`" in table
    assert "cannot be told apart" in table
    for row in rows:
        assert f"{float(row['error']):.2f} ±" in shown
        assert f"{float(row['error']):.2f} ±" in table

    again = compare(
        ["supervised", "pi"], "digits", labels=[50], seeds=2, changes=SHORT,
        folder=tmp_path / "again",
    )  # fmt: skip
    keys = ["method", "labels", "split_seed", "seed", "error", "steps", "epochs"]
    continued = [row for row in rows_of(out / "runs.csv") if row["labels"] == "50"]
    assert [[str(row[key]) for key in keys] for row in again.to_dict("records")] == [
        [row[key] for key in keys] for row in continued
    ]
    means = again.groupby(["labels", "method"]).error.mean()
    for row in rows[:2]:
        assert float(row["error"]) == pytest.approx(means[50, row["method"]], rel=1e-5)


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One label count, two draws of two initial states."""
    folder = tmp_path_factory.mktemp("compared") / "out"
    compare(["supervised", "pi"], "digits", seeds=2, initial_states=2, changes=SHORT, folder=folder)
    return folder


def test_initial_states_and_draws_have_spreads_of_their_own(compared: Path) -> None:
    rows = rows_of(compared / "table.csv")
    assert all(float(row["between_states"]) >= 0 and row["between_draws"] for row in rows)
    table = (compared / "table.md").read_text()
    assert "between draws" in table
    assert "one-way random effects" in table
    runs = rows_of(compared / "runs.csv")
    assert {(row["split_seed"], row["seed"]) for row in runs} == {
        ("0", "0"), ("0", "1000"), ("1", "1"), ("1", "1001")
    }  # fmt: skip
    errors = {row["error"] for row in runs if row["method"] == "pi" and row["split_seed"] == "0"}
    assert len(errors) == 2  # another state is another run


def test_the_page_is_whole_and_says_nothing_of_a_paper(compared: Path) -> None:
    text = (compared / "index.html").read_text("utf-8")
    page = Page(text)
    assert page.texts["h1"] == ["2 methods compared on digits"]
    assert len(page.of("svg")) == len(page.texts["figcaption"]) == 2
    assert page.texts["figcaption"][0].startswith("Learning curves")
    assert page.texts["figcaption"][1].startswith("Accuracy against time")
    assert {"supervised", "pi", "50 labels"} <= set(page.texts["th"])
    assert "the best" in page.texts["td"]
    links = [v or "" for _, a in page.elements for k, v in a.items() if k.endswith(("href", "src"))]
    assert all(link.startswith(("#", "data:")) for link in links)
    for word in ("paper", "iccv"):
        assert word not in text.casefold()
        assert word not in (compared / "table.md").read_text().casefold()
    for name in ("curves", "time"):
        assert (compared / f"{name}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_baselines_and_ceiling_are_rows_of_the_table(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = tmp_path / "out"
    words = ["compare", "digits", "--methods", "supervised", "--seeds", "2", *CHANGES]
    words += ["--baselines", "--ceiling", "--out", str(out)]
    code, shown, messages = command(*words)
    assert code == 0, messages
    rows = rows_of(out / "table.csv")
    baselines = ["logistic regression", "SVM", "label spreading", "self-training"]
    assert [row["method"] for row in rows] == ["supervised", "all labels", *baselines]
    assert [row["p_value"] for row in rows if row["method"] == "all labels"] == [""]
    lines = [line for line in shown.splitlines() if "±" in line and "mean ±" not in line]
    assert {len(line) <= 80 for line in lines} == {True}
    for row in rows:
        (line,) = (line for line in lines if line.startswith(f"  {row['method']} "))
        assert f" {float(row['error']):.2f} ± " in line
    runs = rows_of(out / "runs.csv")
    assert len(runs) == 2 * len(rows)
    for draw in (0, 1):
        data = prepare(small_recipe().data, seed=draw)
        pixels = data.train.read_pixels(data.labeled)
        test = data.test.read_pixels(torch.arange(len(data.test)))
        assert pixels is not None
        assert test is not None
        reference = LogisticRegression(max_iter=1000)
        reference.fit(pixels.flatten(1) / 255, data.labels[data.labeled])
        accuracy = reference.score(test.flatten(1) / 255, data.test_labels)
        (found,) = (r for r in runs if (r["method"], r["seed"]) == (baselines[0], str(draw)))
        assert float(found["error"]) == pytest.approx(100 * (1 - accuracy))
    page = (out / "index.html").read_text("utf-8")
    assert all(name in page for name in (*baselines, "all labels", "10,000 of the unlabeled"))

    # What was measured is kept.
    kept = out / "baselines" / "SVM-50-draw1.json"
    kept.write_text(kept.read_text().replace('"steps": 0', '"steps": 12345'))
    assert command(*words)[0] == 0
    steps = [row["steps"] for row in rows_of(out / "runs.csv") if row["method"] == "SVM"]
    assert steps == ["0", "12345"]


def test_mistakes_are_one_line(command: Command, tmp_path: Path) -> None:
    for words, message in (
        (["digits"], "--methods"),
        (["digits", "--methods", "supervized"], "'supervised'"),
        (["digits", "--methods", "pi", "--labels", "70000"], "70000"),
        (["--methods", "pi", "--data", str(tmp_path / "nowhere")], "nowhere"),
    ):
        code, _, shown = command("compare", *words)
        assert (code, shown.count("\n")) == (2, 1), shown
        assert message in shown


@pytest.mark.slow
def test_a_method_that_diverges_is_named_and_the_others_are_shown(
    command: Command, tmp_path: Path
) -> None:
    methods = "supervised,pi:consistency_weight=1e38"
    out = tmp_path / "out"
    code, _, messages = command(
        *("compare", "digits", "--methods", methods, "--seeds", "1", *CHANGES, "--out", str(out))
    )
    assert code == 2
    shown = " ".join(messages.split())
    assert "error: 1 of 2 runs failed, 1 finished: pi" in shown
    assert "no longer finite" in shown
    assert f"the methods without a failure are in {out}" in shown.replace("/ ", "/")
    assert [row["method"] for row in rows_of(out / "runs.csv")] == ["supervised"]
    rows, *notes = (out / "table.md").read_text().split("\n\n")
    assert "pi:" not in rows
    assert any(note.startswith("Not shown, as runs failed: pi:") for note in notes)
    assert Page((out / "index.html").read_text()).texts["h1"] == ["1 method compared on digits"]


def test_python_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UserError, match="pip install pandas"):
        compare(["pi"], "digits")
