"""Lists folders of images: a folder per class, or a source and a target to adapt to."""

import errno
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from dualstudent.data.datasets import Part
from dualstudent.data.images.listing import Listing, sort_naturally
from dualstudent.data.paths import RIGHTS_TO_IMAGES, raise_denied
from dualstudent.errors import UserError, raise_problems

# Files without an ending are often images named by their checksum.
_ENDINGS = {"", ".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif"}
_TEST, _VALIDATION = "test", {"val", "valid", "validation"}
_TRAINING = {"train", "labeled", "labelled"}  # may hold the class folders
_UNLABELED = {"unlabeled", "unlabelled"}
_USUAL = "unlabeled"
_DOMAINS = ("source", "target")  # folders of one that holds both


@dataclass(frozen=True)
class _Group:
    """The files of one folder, which all have the same label and part."""

    files: list[Path]
    label: int
    part: Part
    of_target: bool = False


def list_folder(folder: Path, unlabeled: str = _USUAL) -> Listing:
    """List a folder with a folder per class, a folder of unlabeled images, and maybe a test part.

    ::

        DATA/cat/…  DATA/dog/…  DATA/unlabeled/…  DATA/test/cat/…  DATA/test/dog/…

    The class folders may also be in ``DATA/train`` or ``DATA/labeled``, and may contain nested
    folders. Hidden files are skipped. Files are in natural order.

    Args:
        folder: DATA.
        unlabeled: name of the folder of unlabeled images.

    Raises:
        UserError: if the folder has another structure.
    """
    classes, labeled = _group_labeled(folder, unlabeled)
    places = dict.fromkeys((folder, _find_training_folder(folder, unlabeled)))
    if unlabeled != _USUAL and not any((place / unlabeled).is_dir() for place in places):
        raise UserError(
            f"{folder}: has no folder {unlabeled!r}, which is to hold the unlabeled images; it has "
            + (_join_names({name for place in places for name in _list_folders(place)}) or "none")
        )
    groups = labeled + [_Group(find_files(place / unlabeled), -1, "train") for place in places]
    return _make_listing(str(folder), classes, groups, folder)


def find_domains(folder: Path) -> tuple[Path, Path] | None:
    """Find the folders ``source``, which has class folders, and ``target``; None without them.

    Raises:
        UserError: if they are spelled otherwise, or others are beside them.
    """
    names = _list_folders(folder)
    alike = {name.casefold(): folder / name for name in names if name.casefold() in _DOMAINS}
    if len(alike) < len(_DOMAINS) or not _list_folders(alike["source"]):
        return None  # or classes of these names, which hold images
    if sorted(names) != sorted(_DOMAINS):
        raise UserError(
            f"{folder}: has the folders {_join_names(names)}; two domains are in the folders "
            f"'source' and 'target', spelled so and alone: test images go into "
            f"{folder / 'target' / _TEST}, unlabeled ones into {folder / 'target' / _USUAL}"
        )
    return alike["source"], alike["target"]


def holds_domains(folder: Path) -> bool:
    """Return whether a folder holds two domains, as :func:`find_domains` finds them."""
    try:
        return find_domains(folder) is not None
    except (UserError, OSError):  # similar names, or a folder that cannot be read
        return False


def list_domains(
    source: Path, target: Path, unlabeled: str = _USUAL, target_labels: bool = False
) -> Listing:
    """List a labeled source folder and a target folder to adapt to.

    Without ``target_labels``, all images of the target are unlabeled, whatever their folder, except
    those in its ``test``. Unlabeled and test images of the source are not used.

    Args:
        source: folder with a folder per class.
        target: folder of images; if it has class folders, they must be those of the source, and
            with ``target_labels`` some of those.
        unlabeled: name of the folder of unlabeled images.
        target_labels: whether images in the class folders of the target count as labeled.

    Raises:
        UserError: if a folder has another structure, or the classes differ.
    """
    if source.resolve() == target.resolve():
        raise UserError(f"{target}: is the source itself; name another folder to adapt to")
    for inner, outer in ((source, target), (target, source)):
        if inner.resolve().is_relative_to(outer.resolve()):
            raise UserError(f"{inner}: lies in {outer}; source and target must lie side by side")
    classes, labeled = _group_labeled(source, unlabeled)
    if not classes:
        raise UserError(f"{source}: has no folder per class; the source is where the labels are")
    inner = _find_training_folder(target, unlabeled)
    found = set(_list_folders(inner)) - {unlabeled, _TEST}
    if not found <= set(classes) or (found and not target_labels and found != set(classes)):
        raise UserError(
            f"{target}: has the classes {_join_names(found)}, {source} has {_join_names(classes)}; "
            "adaptation needs the same of both. Images of unknown class go into "
            f"{target / unlabeled}"
        )
    known_target = [
        _Group(find_files(inner / name), classes.index(name), "train", of_target=True)
        for name in classes
        if name in found
    ]
    unused = 0 if target_labels else sum(len(group.files) for group in known_target)
    if target_labels:
        labeled += known_target
    known = {path for group in labeled for path in group.files}
    images = [path for path in find_files(target, without=(_TEST,)) if path not in known]
    groups = [*labeled, _Group(images, -1, "train", of_target=True)]
    listing = _make_listing(f"{source} → {target}", classes, groups, target)
    return replace(listing, unused_labels=unused)


def find_class_folders(folder: Path, apart: Collection[str] = ()) -> dict[str, Path]:
    """Return class name → folder, in natural order.

    Args:
        folder: the folder with the class folders.
        apart: names of folders that are not classes.

    Raises:
        UserError: if there are images outside the class folders.
    """
    loose = [path for path in _list_files(folder) if path.suffix.lower() in _ENDINGS - {""}]
    if loose:
        raise UserError(
            f"{folder}: {len(loose)} image(s) such as {loose[0].name} lie outside the class "
            "folders; move each into the folder of its class, or of the unlabeled images"
        )
    return {name: folder / name for name in _list_folders(folder) if name not in apart}


def find_files(folder: Path, without: Collection[str] = ()) -> list[Path]:
    """List all visible files in a folder and its subfolders, in natural order.

    Args:
        folder: the folder; if it does not exist, the list is empty.
        without: names of subfolders of ``folder`` to skip.
    """
    return list(_walk(folder, without, set()))


def find_images(folder: Path) -> list[Path]:
    """Like :func:`find_files`, for files with the ending of an image."""
    return [path for path in find_files(folder) if _looks_like_image(path)]


def _walk(folder: Path, without: Collection[str], entered: set[Path]) -> Iterator[Path]:
    if not folder.is_dir() or (real := folder.resolve()) in entered:  # links may form a cycle
        return
    entered.add(real)
    yield from _list_files(folder)
    for name in _list_folders(folder):
        if name not in without:
            yield from _walk(folder / name, (), entered)


def _group_labeled(folder: Path, unlabeled: str) -> tuple[list[str], list[_Group]]:
    apart = (unlabeled, _TEST)
    folders = find_class_folders(_find_training_folder(folder, unlabeled), apart)
    # Not "train", which can be a class; nor "unlabeled" if the user chose another name for it.
    misnamed = {_TEST, *_VALIDATION} | (_UNLABELED if unlabeled in _UNLABELED else set())
    raise_problems(
        f"{path}: would be a class called {name!r}; a folder of unlabeled images is called "
        f"{unlabeled!r} (check --unlabeled and data.unlabeled set another), one of test "
        f"images {_TEST!r}, and validation is taken from the labeled images, to which its own "
        "should be moved"
        for name, path in folders.items()
        if name.casefold() in misnamed
    )
    groups = [
        _Group(find_files(path), label, "train") for label, path in enumerate(folders.values())
    ]
    raise_problems(
        f"{path}: holds no images; put some in, or remove the folder"
        for group, path in zip(groups, folders.values(), strict=True)
        if not any(_looks_like_image(file) for file in group.files)
    )
    return list(folders), groups


def _make_listing(name: str, classes: list[str], groups: list[_Group], tested: Path) -> Listing:
    """Make a listing of all groups and of the test images in ``tested``."""
    tests = find_class_folders(tested / _TEST) if (tested / _TEST).is_dir() else {}
    classes = [*classes, *(name for name in tests if name not in classes)]
    adapts = any(group.of_target for group in groups)
    groups = groups + [
        _Group(find_files(path), classes.index(name), "test", adapts)
        for name, path in tests.items()
    ]
    entries = [(path, group) for group in groups for path in group.files]
    images = [entry for entry in entries if _looks_like_image(entry[0])]
    return Listing(
        name,
        paths=tuple(path for path, _ in images),
        labels=tuple(group.label for _, group in images),
        parts=tuple(group.part for _, group in images),
        classes=tuple(classes),
        ignored=tuple(path for path, _ in entries if not _looks_like_image(path)),
        targets=tuple(group.of_target for _, group in images if adapts),
    )


def _find_training_folder(folder: Path, unlabeled: str) -> Path:
    names = set(_list_folders(folder)) - {unlabeled, _TEST}
    training = names & _TRAINING
    if len(training) != 1 or not names <= training | _VALIDATION:
        return folder
    inner = folder / training.pop()
    raise_problems(
        f"{folder / name}: validation is taken from the labeled images; move these into {inner} "
        f"or {folder / _TEST}"
        for name in sorted(names & _VALIDATION)
    )
    return inner


def _list_folders(folder: Path) -> list[str]:
    return [name for name, is_folder in _list_visible(folder) if is_folder]


def _list_files(folder: Path) -> list[Path]:
    return [folder / name for name, is_folder in _list_visible(folder) if not is_folder]


def _list_visible(folder: Path) -> list[tuple[str, bool]]:
    """List visible files and folders in natural order: the name, and whether it is a folder."""
    with raise_denied(folder, RIGHTS_TO_IMAGES), os.scandir(folder) as entries:
        shown = [entry for entry in entries if not entry.name.startswith(".")]
        kinds = {each.name: _is_folder(each) for each in shown}
    return [(name, kind) for name in sort_naturally(kinds) if (kind := kinds[name]) is not None]


def _is_folder(entry: "os.DirEntry[str]") -> bool | None:
    """Return whether an entry is a folder; None if it is neither a folder nor a file."""
    try:
        return True if entry.is_dir() else False if entry.is_file() else None
    except OSError as error:
        if error.errno == errno.ELOOP:  # a link to itself
            return None
        raise


def _looks_like_image(path: Path) -> bool:
    return path.suffix.lower() in _ENDINGS


def _join_names(names: Collection[str]) -> str:
    return ", ".join(sort_naturally(names))
