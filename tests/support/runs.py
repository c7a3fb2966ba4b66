"""Runs that are stopped on the way, and the comparison of two."""

import signal

import torch

from dualstudent import Callback, Run
from dualstudent.sealed import hash_file, write_sealed
from dualstudent.training.checkpoint import read_tensors


class RaisesSignalAt(Callback):
    def __init__(self, step: int, number: int = signal.SIGINT) -> None:
        self._step, self._number = step, number

    def on_step(self, step: int) -> None:
        if step == self._step:
            signal.raise_signal(self._number)


class StopsAtOnce(Callback):
    def on_step(self, step: int) -> None:
        signal.raise_signal(signal.SIGINT)


class DiesAt(Callback):
    def __init__(self, step: int) -> None:
        self._step = step

    def on_step(self, step: int) -> None:
        if step == self._step:
            raise RuntimeError("power cut")


def change_recipe(run: Run, text: str) -> None:
    """Change the recipe of a run as if the run had begun with it."""
    run.recipe.write_text(text)
    about = run.read_about()
    digests = about["digests"] | {run.recipe.name: hash_file(run.recipe)}
    write_sealed(run.about, about | {"digests": digests})


def assert_equal_runs(run: Run, expected: Run) -> None:
    """Weights, optimizer state and metrics, bit for bit."""
    for path, expected_path in ((run.checkpoint, expected.checkpoint), (run.model, expected.model)):
        tensors, _ = read_tensors(path)
        expected_tensors, _ = read_tensors(expected_path)
        assert tensors.keys() == expected_tensors.keys()
        for name, tensor in tensors.items():
            assert torch.equal(tensor, expected_tensors[name]), name
    assert run.metrics.read_bytes() == expected.metrics.read_bytes()
    assert run.read_result()["networks"] == expected.read_result()["networks"]
