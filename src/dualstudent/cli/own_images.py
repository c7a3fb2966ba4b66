"""Training on own images: look at them, choose or adjust a recipe, and say all of it."""

import math
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import typer
from rich.console import Console

from dualstudent.cli.console import print_line
from dualstudent.cli.data_check import counts_table, forecast_line, summary_line
from dualstudent.cli.progress import progress_on
from dualstudent.data.images.cache import DecodedImages, decode_images
from dualstudent.data.images.check import DataCheck, Finding, check_images
from dualstudent.data.images.decoding import Channels
from dualstudent.data.images.listing import Listing
from dualstudent.data.prepare import OF_PUBLISHED, OWN_IMAGE_SIZE, DataSettings
from dualstudent.errors import UserError
from dualstudent.experiments.cost import measure_pace
from dualstudent.recipes.chooser import NETWORKS, Choice, choose_recipe
from dualstudent.recipes.reading import apply_changes, merge, recipe_table, validate
from dualstudent.recipes.schema import Recipe
from dualstudent.report.format import format_estimate
from dualstudent.settings import Table
from dualstudent.training.run import Run


@dataclass
class OwnImages:
    """Looks at own images, once, for people.

    Attributes:
        console: where progress and tables go.
        tell: shows a finding.
        checked: whether the look has been taken.
    """

    console: Console
    tell: Callable[[Finding], None]
    checked: bool = False

    def look(self, listing: Listing, size: int = OWN_IMAGE_SIZE) -> DataCheck:
        """Check the images at ``size`` pixels a side; with errors, this is the end."""
        found = check_images(self._decoded(listing, size, 3))
        self.console.print(counts_table(found))
        self.say(summary_line(found))
        for finding in found.findings:
            self.tell(finding)
        if found.has_errors:
            raise typer.Exit(2)
        self.checked = True
        return found

    def forecast(self, asked: Recipe, found: DataCheck) -> None:
        """Say what a training on checked images would be, and how long it would take."""
        choice, recipe = _chosen(asked, found, ())
        self.say(forecast_line(recipe, found.images, _seconds(recipe, choice)))
        self.say(f"evaluation: {choice.reasons['data.validation']}")

    def choose(self, asked: Recipe, changes: Sequence[str]) -> Recipe:
        """A recipe that suits own images, after a look at them, with the reasons for it printed.

        Args:
            asked: of :func:`recipe_request`, with the same changes.
            changes: ``"key=value"`` each; they win, and the rest goes with them.
        """
        found = self.look(asked.data.listing())
        choice, recipe = _chosen(asked, found, changes)
        self.say("the recipe chosen for these images; change anything by --set KEY=VALUE:")
        for key, reason in choice.reasons.items():
            section, name = key.split(".")
            self.say(f"  {key} = {getattr(getattr(recipe, section), name)}: {reason}")
        self.say(
            f"  about {format_estimate(_seconds(recipe, choice))} on this machine, as busy as it "
            "is now; for a quick try --set schedule.epochs=3"
        )
        return recipe

    def get_ready(self, settings: DataSettings) -> None:
        """Check the images if nobody did, and decode them, as a run will see them."""
        if settings.path is None:
            return
        listing = settings.listing()
        if not self.checked:
            self.look(listing)
        self._decoded(listing, settings.image_size or OWN_IMAGE_SIZE, settings.channels)

    def say_what_next(self, run: Run) -> None:
        """What can be done with a run on own images."""
        recipe, folder = (shlex.quote(str(path)) for path in (run.recipe, run.folder))
        self.say(
            f"to change the recipe: cp {recipe} mine.toml, edit it, dualstudent train mine.toml"
        )
        self.say(f"to use the model: dualstudent predict {folder} IMAGES -o predictions.csv")
        self.say(f"to see what to label next: dualstudent label {folder} -o labels.csv")

    def say(self, line: str) -> None:
        """Print a line that may hold anything."""
        print_line(self.console, line)

    def _decoded(self, listing: Listing, size: int, channels: Channels) -> DecodedImages:
        with progress_on(self.console, "files") as progress:
            return decode_images(listing, size, channels, progress=progress.observer("reading"))


def locate_images(path: Path, **others: Path | str | None) -> Table:
    """Settings of ``data``: of a folder or table, and of whatever else is said of it."""
    return {"path": str(path)} | {k: str(v) for k, v in others.items() if v is not None}


def recipe_for_images(recipe: str, where: Table, changes: Sequence[str]) -> Recipe:
    """A recipe with own images in place of the data that it names.

    Args:
        recipe: name or path.
        where: of :func:`locate_images`.
        changes: ``"key=value"`` each.
    """
    table = recipe_table(recipe)
    kept = {key: value for key, value in table.get("data", {}).items() if key not in OF_PUBLISHED}
    return validate(apply_changes(table | {"data": kept | where}, changes), recipe)


def recipe_request(where: Table, changes: Sequence[str] = ()) -> Recipe:
    """What the user set, on top of anything valid: refused before a long look at the images.

    Of the recipe only data, seed and device are of use.

    Args:
        where: of :func:`locate_images`.
        changes: ``"key=value"`` each.
    """
    base = merge(recipe_table("demo"), {"schedule": {"epochs": 1}}) | {"data": where}
    refused: list[UserError] = []
    for name in NETWORKS:  # which of them is chosen, and so what can be set, is not known yet
        table = base | {"network": {"name": name}}
        try:
            return validate(apply_changes(table, changes), f"chosen for {where['path']}")
        except UserError as error:
            refused.append(error)
    raise refused[0]


def _chosen(asked: Recipe, found: DataCheck, changes: Sequence[str]) -> tuple[Choice, Recipe]:
    where = asked.data.model_dump(mode="json", exclude_unset=True)
    choice = choose_recipe(found, asked.device.gpu == "cuda", apply_changes({}, changes))
    table = merge(choice.table, {"data": where})
    return choice, validate(table, f"chosen for {asked.data.path}")


def _seconds(recipe: Recipe, choice: Choice) -> float:
    """What the training will take, as measured on a few steps."""
    # Images of the same shape; the number of classes hardly matters.
    alike = DataSettings(
        source="mnist" if recipe.data.channels == 1 else "cifar10",
        image_size=recipe.data.image_size,
    )
    pace = measure_pace(recipe.model_copy(update={"data": alike}))
    tests = math.ceil(recipe.schedule.epochs / recipe.evaluation.every)
    looks = tests * 2 * choice.evaluated  # each image clean and perturbed
    return choice.steps * recipe.batch.size * pace.training + looks * pace.test
