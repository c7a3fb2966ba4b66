"""Training on own images: look at them, choose or adjust a recipe, and say all of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import typer
from rich.console import Console

from dualstudent.data.cache import DecodedImages, decode_once
from dualstudent.data.check import DataCheck, Finding, check_images
from dualstudent.data.decoding import Channels
from dualstudent.data.listing import Listing
from dualstudent.data.prepare import OF_PUBLISHED, OWN_IMAGE_SIZE, DataSettings
from dualstudent.errors import on_one_line
from dualstudent.experiments.cost import measured_pace, roughly
from dualstudent.recipes.choosing import Choice, choose_recipe
from dualstudent.recipes.reading import changed, merged, recipe_table, validated
from dualstudent.recipes.schema import Recipe
from dualstudent.report.data_check import counts_table, summary_line
from dualstudent.training.progress import progress_on

_BEFORE_CHOOSING = ("data.", "device.")


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

    def get_ready(self, settings: DataSettings) -> None:
        """Check the images if nobody did, and decode them, as a run will see them."""
        if settings.path is None:
            return
        listing = settings.listing()
        if not self.checked:
            self.look(listing)
        self._decoded(listing, settings.image_size or OWN_IMAGE_SIZE, settings.channels)

    def say(self, line: str) -> None:
        """Print a line that may hold anything."""
        self.console.print(on_one_line(line), markup=False, highlight=False, soft_wrap=True)

    def _decoded(self, listing: Listing, size: int, channels: Channels) -> DecodedImages:
        with progress_on(self.console, "files") as progress:
            return decode_once(listing, size, channels, progress=progress.observer("reading"))


def recipe_on(recipe: str, data: Path, target: Path | None, changes: Sequence[str]) -> Recipe:
    """A recipe with own images in place of the data that it names.

    Args:
        recipe: name or path.
        data: folder or table of the images.
        target: folder to adapt to.
        changes: ``"key=value"`` each.
    """
    table = recipe_table(recipe)
    kept = {key: value for key, value in table.get("data", {}).items() if key not in OF_PUBLISHED}
    return validated(changed(table | {"data": kept | _where(data, target)}, changes), recipe)


def recipe_chosen_for(
    data: Path, target: Path | None, changes: Sequence[str], own: OwnImages
) -> Recipe:
    """A recipe that suits own images, after a look at them, with the reasons for it printed.

    Args:
        data: folder or table of the images.
        target: folder to adapt to.
        changes: ``"key=value"`` each; they win.
        own: looks at the images.
    """
    early = [change for change in changes if change.strip().startswith(_BEFORE_CHOOSING)]
    asked = recipe_on("demo", data, target, early)  # of which only data and device count
    found = own.look(asked.data.listing())
    cuda = torch.cuda.is_available() and asked.device.accelerator in ("auto", "cuda")
    choice = choose_recipe(found, cuda)
    wanted = changed(choice.table, changes)["schedule"].get("epochs")
    if isinstance(wanted, int) and wanted > 0:
        choice = choose_recipe(found, cuda, wanted)
    table = merged(choice.table, {"data": _where(data, target)})
    recipe = validated(changed(table, changes), f"chosen for {data}")
    own.say("the recipe chosen for these images; change anything by --set KEY=VALUE:")
    for line in _explained(choice, recipe, changes):
        own.say(f"  {line}")
    own.say(f"  about {roughly(_seconds(recipe, found))} on this machine")
    return recipe


def _where(data: Path, target: Path | None) -> dict[str, Any]:
    return {"path": str(data)} | ({} if target is None else {"target_path": str(target)})


def _explained(choice: Choice, recipe: Recipe, changes: Sequence[str]) -> list[str]:
    lines, asked_for = [], {change.partition("=")[0].strip() for change in changes}
    for key, reason in choice.reasons.items():
        section, name = key.split(".")
        value = getattr(getattr(recipe, section), name)
        lines.append(f"{key} = {value}: {'as you set it' if key in asked_for else reason}")
    return lines


def _seconds(recipe: Recipe, found: DataCheck) -> float:
    """What the training will take, as measured on a few steps; tests come on top."""
    batch, size = recipe.batch, recipe.data.image_size or OWN_IMAGE_SIZE
    samples, each = found.unlabeled, batch.size - batch.labeled
    if not samples:
        samples, each = sum(found.labeled.values()), batch.size
    steps = recipe.schedule.epochs * (samples // max(each, 1))
    # Images of the same shape; the number of classes hardly matters.
    alike = DataSettings(
        source="mnist" if recipe.data.channels == 1 else "cifar10", image_size=size
    )
    pace = measured_pace(recipe.model_copy(update={"data": alike}))
    return steps * batch.size * pace.training
