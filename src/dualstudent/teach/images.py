"""The images of a folder, a table or a run, with the labels that they come with."""

from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from dualstudent.data.datasets import Part
from dualstudent.data.images.folders import find_images, holds_domains
from dualstudent.data.images.listing import is_text
from dualstudent.data.images.own import list_images
from dualstudent.data.paths import RIGHTS_TO_IMAGES, path_exists
from dualstudent.data.prepare import DataSettings
from dualstudent.errors import UserError
from dualstudent.settings import Settings, explain
from dualstudent.training.run import Run
from dualstudent.trunks.trunk import TrunkSettings

_LAYOUTS = ("unlabeled", "train/unlabeled", "labeled/unlabeled")


@dataclass(frozen=True)
class Image:
    """An image file.

    Attributes:
        path: absolute.
        label: the class that it comes with; empty if it has none.
        part: ``"test"`` images are left alone.
    """

    path: Path
    label: str = ""
    part: Part = "train"


@dataclass(frozen=True)
class Collection:
    """What is to be taught.

    Attributes:
        source: absolute path of the folder or table.
        images: in natural order.
        unnamed: files whose names are not text, which no table could hold.
        trunk: of the run, if it is one of a run that had one.
    """

    source: Path
    images: tuple[Image, ...]
    unnamed: tuple[Path, ...] = ()
    trunk: TrunkSettings | None = None


class _Used(Settings):
    """What is used of the recipe of a run; its network and method may be code of others."""

    data: DataSettings
    trunk: TrunkSettings | None = None


def find_collection(where: Path) -> Collection:
    """List the images to teach with.

    A folder in the layout of ``dualstudent train``, with a folder ``unlabeled``, has labels. In any
    other folder all images are unlabeled, however they are nested.

    Args:
        where: a folder, a table of paths and labels, or the folder of a finished run.

    Raises:
        UserError: if there are no images, or all have a label.
    """
    if not path_exists(where, RIGHTS_TO_IMAGES):
        raise UserError(f"{where}: does not exist; give a folder of images, or of a finished run")
    if (where / "recipe.toml").is_file():
        return _open_run(Run.open(where))
    source = where.absolute()
    if holds_domains(source):
        raise UserError(f"{where}: holds two domains; teach one, for example {where / 'target'}")
    if source.is_dir() and not any((source / layout).is_dir() for layout in _LAYOUTS):
        found = tuple(Image(path) for path in find_images(source))
    else:
        found = _list(source)
    if not found:
        raise UserError(f"{where}: holds no images; put some in, anywhere below this folder")
    if all(image.label for image in found):
        raise UserError(f"{where}: every image has a label; there is nothing left to label")
    named = tuple(image for image in found if is_text(str(image.path)))
    unnamed = tuple(image.path for image in found if not is_text(str(image.path)))
    if not named:
        raise UserError(f"{where}: no file has a name that is UTF-8 text; rename them")
    return Collection(source, named, unnamed)


def _open_run(run: Run) -> Collection:
    table = run.read_recipe_table()
    used = {key: table[key] for key in _Used.model_fields if key in table}
    try:
        recipe = _Used.model_validate(used)
    except ValidationError as error:
        raise UserError(f"{run.recipe}: {explain(error, _Used, used)}") from error
    if recipe.data.path is None or recipe.data.target_path is not None:
        raise UserError(
            f"{run.folder}: was not trained on images of one folder or table; give a folder"
        )
    run.read_result()  # raises if it has not finished
    found = find_collection(recipe.data.path)
    return Collection(found.source, found.images, found.unnamed, recipe.trunk)


def _list(source: Path) -> tuple[Image, ...]:
    """List the layout of ``train``; without two labeled classes, the images of its folders."""
    try:
        listing = list_images(source)
    except UserError:
        if not source.is_dir() or any(_find_labeled(source)):
            raise
        return tuple(Image(path) for path in find_images(source))
    if listing.adapts:
        raise UserError(f"{source}: holds two domains; give a table of one, without 'domain'")
    names = [listing.classes[label] if label >= 0 else "" for label in listing.labels]
    rows = zip(listing.paths, names, listing.parts, strict=True)
    return tuple(Image(path.absolute(), name, part) for path, name, part in rows)


def _find_labeled(source: Path) -> list[Path]:
    """Folders beside the unlabeled images that hold others."""
    places = {(source / layout).parent for layout in _LAYOUTS if (source / layout).is_dir()}
    beside = [path for place in places for path in place.iterdir() if path.is_dir()]
    return [path for path in beside if path.name != "unlabeled" and find_images(path)]
