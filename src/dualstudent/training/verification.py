"""Checks everything that can be checked about a run."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

from dualstudent.data.prepare import prepare
from dualstudent.discovery import ForeignCode
from dualstudent.errors import UserError
from dualstudent.training.adaptation import read_features
from dualstudent.training.checkpoint import read_checkpoint
from dualstudent.training.model_file import read_model
from dualstudent.training.run import FORMAT, Run
from dualstudent.training.trunk import use_trunk

Outcome = Literal["ok", "warning", "error"]


@dataclass(frozen=True)
class Check:
    """One thing that was checked.

    Attributes:
        what: a file of the run, the data or the versions.
        outcome: ``"warning"`` if the run can be used, but not repeated exactly.
        message: what was found.
    """

    what: str
    outcome: Outcome
    message: str


def verify_run(run: Run, with_data: bool = True) -> Iterator[Check]:
    """Check the digests and the form of all files of a run, its data and its versions.

    Nothing of the run is executed or changed, so that it is safe for the run of a stranger; code
    that it names is imported only if it is among ``run.imports``. Its
    recipe may name any images on this machine, which are read, or published data, which are
    downloaded if they are missing.

    Args:
        run: a run, finished or not.
        with_data: whether to look for the data, too.
    """
    sealed = run.read_about()["format"] == FORMAT
    unsealed = "readable, but an earlier version wrote no digests"
    for file, read in _list_files(run):
        try:
            read()
        except ForeignCode as error:
            yield Check(file, "warning", f"whole, but not imported: {error}")
        except UserError as error:
            yield Check(file, "error", str(error))
        else:
            yield Check(file, "ok", "whole") if sealed else Check(file, "warning", unsealed)
    yield _check_versions(run)
    if with_data:
        yield _check_data(run)


def _list_files(run: Run) -> Iterator[tuple[str, Callable[[], object]]]:
    """Name → what reads and checks the file, for all files that a run must or may have."""
    yield run.about.name, run.read_about
    yield run.recipe.name, run.read_recipe
    if run.split.name in run.read_about().get("digests", {}):
        yield run.split.name, lambda: run.check_digest(run.split)
    for path in (run.checkpoint, run.earlier_checkpoint):
        if path.exists() or (path == run.checkpoint and run.metrics.exists()):
            yield path.name, partial(read_checkpoint, path)
    if run.features_before.exists():  # earlier versions kept none
        yield run.features_before.name, partial(read_features, run.features_before)
    if run.result.exists():
        yield run.result.name, run.read_result
        yield run.metrics.name, run.read_metrics
        yield run.model.name, lambda: read_model(run)


def _check_versions(run: Run) -> Check:
    try:
        others = run.list_other_versions()
    except UserError as error:
        return Check("versions", "error", str(error))
    if others:
        return Check("versions", "warning", f"begun with {', '.join(others)}")
    return Check("versions", "ok", "those of this installation")


def _check_data(run: Run) -> Check:
    try:
        recipe = run.read_recipe()
        if recipe.data.path is None and recipe.data.source is None:
            return Check("data", "warning", "handed over from Python, so not checked")
        data = prepare(recipe.data, recipe.seed, recipe.transforms, recipe.normalization)
        run.check_same_data(use_trunk(recipe, data))
    except ForeignCode:
        return Check("data", "warning", "not looked for, as the recipe names code of others")
    except UserError as error:
        return Check("data", "error", str(error))
    return Check("data", "ok", "those that the run began with")
