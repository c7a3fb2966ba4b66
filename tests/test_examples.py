from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from dualstudent import UserError

EXAMPLES = Path(__file__).parents[1] / "examples"
SHORTER = {"EPOCHS, SEED = 10, 0": "EPOCHS, SEED = 4, 0", '"mnist-5k"': '"digits-8x8"'}


@pytest.mark.learns
@pytest.mark.parametrize("name", ["dual_student", "mean_teacher"])
def test_the_examples_learn(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """On smaller digits and in fewer epochs: a tenth of the time."""
    source = (EXAMPLES / f"{name}.py").read_text()
    for long, short in SHORTER.items():
        assert long in source
        source = source.replace(long, short)
    exec(source, {})
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("epoch 4: test error")
    errors = [float(word) for word in last.split()[4:7] if word[0].isdigit()]
    assert max(errors) < 70  # 41 to 46 on both CPUs, chance is 90


def exec_own_loop(*changes: tuple[str, str]) -> None:
    """On smaller digits and in fewer epochs, after other changes of the source."""
    source = (EXAMPLES / "own_loop.py").read_text()
    for long, short in (
        ("EPOCHS, SEED, LABELED, UNLABELED = 10,", "EPOCHS, SEED, LABELED, UNLABELED = 5,"),
        ("\n\nEPOCHS", "\nfrom dualstudent.data.sources import bundled\n\nEPOCHS"),
        ('load_mnist_5k("', 'bundled.load_digits_8x8("'),
        *changes,
    ):
        assert long in source
        source = source.replace(long, short)
    exec(source, {"__name__": "own_loop"})


MEAN_TEACHER = (
    ("DualStudentSettings(consistency_weight=10, stabilization_weight=100)", "None"),
    ("    DualStudentSettings,\n", "    MeanTeacher,\n"),
    ("DualStudent(students", "MeanTeacher(students"),
    ("range(2)]\nmethod", "range(1)]\nmethod"),
)


@pytest.mark.learns
def test_the_loop_of_ones_own_learns(capsys: pytest.CaptureFixture[str]) -> None:
    exec_own_loop()
    last = capsys.readouterr().out.splitlines()[-2:]
    assert [line.split()[5] for line in last] == ["student1", "student2"]
    assert max(float(line.split()[-2]) for line in last) < 75  # 33 to 50, chance is 90


def test_the_loop_of_ones_own_takes_another_method(capsys: pytest.CaptureFixture[str]) -> None:
    exec_own_loop(*MEAN_TEACHER)
    last = capsys.readouterr().out.splitlines()[-2:]
    assert [line.split()[5] for line in last] == ["student", "teacher"]


def test_the_loop_of_ones_own_takes_fewer_labels_than_a_batch_has(
    capsys: pytest.CaptureFixture[str],
) -> None:
    exec_own_loop(
        ("choose_images(train, 50, SEED)", "choose_images(train, 20, SEED)"),
        ("for epoch in range(EPOCHS)", "for epoch in range(1)"),
    )
    assert len(capsys.readouterr().out.splitlines()) == 2


@pytest.mark.parametrize(
    "hook", ["method.after_step(step)", "method.after_epoch(epoch, make_batches())"]
)
def test_the_loop_of_ones_own_without_a_hook_is_stopped(hook: str) -> None:
    temporal = [
        (old, new.replace("MeanTeacher", "TemporalEnsembling")) for old, new in MEAN_TEACHER
    ]
    changes = MEAN_TEACHER if "step" in hook else temporal
    with pytest.raises(
        (UserError, UserWarning), match=hook.split("(", maxsplit=1)[0].removeprefix("method.")
    ):
        exec_own_loop(*changes, (hook, "pass"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Jupyter's packages, about each other
def test_the_notebook_runs_from_top_to_bottom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MPLBACKEND", raising=False)  # figures belong into the notebook
    notebook: Any = nbformat.reads((EXAMPLES / "tour.ipynb").read_text(), as_version=4)  # type: ignore[no-untyped-call]
    assert not any(cell.get("outputs") for cell in notebook.cells)  # none are kept
    for long, short in (("schedule.epochs=6", "schedule.epochs=2"), ("(epochs=10", "(epochs=3")):
        (cell,) = (cell for cell in notebook.cells if long in cell.source)
        cell.source = cell.source.replace(long, short)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": EXAMPLES}}).execute()
    outputs = [out for cell in notebook.cells for out in cell.get("outputs", [])]
    shown = str(outputs)
    assert "of the labels met" in shown  # the bar of the classifier
    assert shown.count("image/png") == 1
    bars = [out for out in outputs if "steps" in str(out.get("data", {}).get("text/plain"))]
    assert len(bars) == 3  # each is one line that was replaced again and again
