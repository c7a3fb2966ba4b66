"""Checks own images before training: counts, duplicates, and other problems."""

import math
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dualstudent.data.images.cache import DecodedImages
from dualstudent.data.images.duplicates import find_exact_duplicates, find_near_duplicates
from dualstudent.data.images.listing import Listing, is_text, name_lost_classes
from dualstudent.data.splits import count_labeled
from dualstudent.data.transforms.color_cue import color_matters
from dualstudent.data.transforms.symmetry import may_be_mirrored

# With three labels, one for validation leaves only two to learn from.
_FEW_LABELS = 4
_IMBALANCE = 10
_TINY = 8  # pixels of the short side; digits need at least these
_ENLARGED = 2
_ODD, _SELDOM = 5, 0.1  # times as large or small as the median, at most this share of all
_LONG = 2  # aspect ratio: the center square has less than half of the image
_LOOKED_AT = 100  # images of a domain, to see whether it has colors
_CHUNK = 2048  # images that are processed together

_LABELED, _UNLABELED, _TEST = range(3)


@dataclass(frozen=True)
class Finding:
    """A possible problem of the data.

    Attributes:
        severity: ``"error"`` if training would be wrong, else ``"warning"``.
        message: the problem, and what to do.
        files: the files concerned, in groups such as duplicates.
    """

    severity: Literal["error", "warning"]
    message: str
    files: tuple[tuple[Path, ...], ...] = ()


@dataclass(frozen=True)
class DataCheck:
    """The result of :func:`check_images`.

    Attributes:
        name: name of the data.
        labeled: class → number of labeled training images.
        test: class → number of test images.
        unlabeled: number of unlabeled images.
        unreadable: number of files that cannot be read.
        smallest: height and width of the smallest image, before resizing.
        largest: height and width of the largest image, before resizing.
        typical: median length of the short side in pixels.
        is_gray: whether no image has color, so that one channel is enough.
        size: size after resizing, in pixels a side.
        findings: possible problems, errors first.
        labeled_copies: number of labeled images that equal an earlier labeled image.
        unlabeled_copies: number of unlabeled images that equal a labeled one.
        may_be_mirrored: whether mirror images look like their class.
        color_matters: whether colors alone tell the classes apart.
        adapts: whether there is a target domain to adapt to.
        labeled_target: class → number of those labeled images that are of the target.
    """

    name: str
    labeled: dict[str, int]
    test: dict[str, int]
    unlabeled: int
    unreadable: int
    smallest: tuple[int, int]
    largest: tuple[int, int]
    typical: int
    is_gray: bool
    size: int
    findings: tuple[Finding, ...]
    labeled_copies: int = 0
    unlabeled_copies: int = 0
    may_be_mirrored: bool = False
    color_matters: bool = False
    adapts: bool = False
    labeled_target: dict[str, int] = field(default_factory=dict)

    @property
    def labeled_source(self) -> dict[str, int]:
        """Class → number of labeled images of the source, which can be held out."""
        return {name: n - self.labeled_target.get(name, 0) for name, n in self.labeled.items()}

    @property
    def images(self) -> int:
        """Number of all images."""
        return sum(self.labeled.values()) + sum(self.test.values()) + self.unlabeled

    @property
    def has_errors(self) -> bool:
        return any(finding.severity == "error" for finding in self.findings)

    def count_bytes(self, size: int) -> int:
        """Return the memory of all images at ``size`` pixels a side, in bytes."""
        return self.images * (1 if self.is_gray else 3) * size * size


def check_images(images: DecodedImages, labels: int | str = "all") -> DataCheck:
    """Count, compare and measure all images; duplicates are searched across all parts.

    Args:
        images: in the form in which they are learned.
        labels: number or share of labels that a run may see, or "all". Whether mirror images look
            like their class, and whether color matters, is judged by no more.
    """
    listing = images.listing
    findings = [
        *_check_files(images),
        *_check_labels(listing),
        *(_check_domains(images) if listing.adapts else ()),
        *_check_exact_duplicates(images),
        *_check_near_duplicates(images),
        *_check_pixels(images),
    ]
    known = _pick_labeled(images, labels)
    areas = images.sizes.astype(np.int64).prod(axis=1)
    smallest, largest = images.sizes[[areas.argmin(), areas.argmax()]].tolist()
    return DataCheck(
        name=listing.name,
        labeled=_count(listing, listing.labeled),
        test=_count(listing, listing.test),
        unlabeled=len(listing.unlabeled),
        unreadable=len(images.unreadable),
        smallest=tuple(smallest),
        largest=tuple(largest),
        typical=int(np.median(images.sizes.min(axis=1))),
        is_gray=images.is_gray,
        size=images.pixels.shape[-1],
        may_be_mirrored=may_be_mirrored(*known),
        color_matters=color_matters(*known),
        adapts=listing.adapts,
        labeled_target=_count(listing, sorted({*listing.labeled} - {*listing.labeled_source})),
        findings=tuple(sorted(findings, key=lambda finding: finding.severity)),
        **_count_copies(images),
    )


def _count_copies(images: DecodedImages) -> dict[str, int]:
    listing, first = images.listing, find_exact_duplicates(images.digests)
    labeled, unlabeled = np.array(listing.labeled), np.array(listing.unlabeled, np.int64)
    return {
        "labeled_copies": len(labeled) - len(np.unique(first[labeled])),
        "unlabeled_copies": int(np.isin(first[unlabeled], first[labeled]).sum()),
    }


def _pick_labeled(images: DecodedImages, labels: int | str) -> tuple[Tensor, Tensor]:
    """Pixels and labels of as many labeled images as a run may see."""
    listing, given = images.listing, images.listing.labeled
    count = count_labeled(labels, len(given), len(listing.classes))
    chosen = np.array(listing.pick_evenly(given, count))
    known = torch.tensor([listing.labels[i] for i in chosen])
    return torch.from_numpy(images.pixels[images.rows[chosen]]), known


def _count(listing: Listing, indices: Iterable[int]) -> dict[str, int]:
    counts = Counter(listing.labels[i] for i in indices)
    return {name: counts[label] for label, name in enumerate(listing.classes)}


def _check_files(images: DecodedImages) -> Iterable[Finding]:
    if images.unreadable:
        total = len(images.listing) + len(images.unreadable)
        first = images.unreadable[0]
        yield Finding(
            "warning",
            f"files that cannot be read and are left out: {len(images.unreadable):,} of {total:,} "
            f"(the first: {first.reason})",
            tuple((file.path,) for file in images.unreadable),
        )
    if nameless := [path for path in images.listing.paths if not is_text(str(path))]:
        yield Finding(
            "warning",
            f"files whose names are not UTF-8: {len(nameless):,}; rename them, or 'dualstudent "
            "label' cannot list them in its table",
            tuple((path,) for path in nameless),
        )
    if images.listing.ignored:
        yield Finding(
            "warning",
            f"files that were not taken for images, by their endings: "
            f"{len(images.listing.ignored):,}",
            tuple((path,) for path in images.listing.ignored),
        )


def _check_labels(listing: Listing) -> Iterable[Finding]:
    labeled, test = _count(listing, listing.labeled), _count(listing, listing.test)
    lost = [name for name, count in labeled.items() if not count]
    if lost:
        yield Finding("error", f"classes without a single label that can be read: {_shorten(lost)}")
    few = [f"{name} {count}" for name, count in labeled.items() if 0 < count < _FEW_LABELS]
    if few:
        yield Finding(
            "warning",
            f"classes with fewer than {_FEW_LABELS} labels: {_shorten(few)}; label some more, a "
            "single unusual image would have too much influence",
        )
    most, least = max(labeled, key=labeled.__getitem__), min(labeled, key=labeled.__getitem__)
    if labeled[most] >= _IMBALANCE * labeled[least] > 0:
        yield Finding(
            "warning",
            f"the classes are imbalanced: {most} has {labeled[most]:,} labels, {least} "
            f"{labeled[least]:,}; rare classes will be predicted too seldom, label more of them",
        )
    if not listing.unlabeled:
        yield Finding(
            "warning", "there are no unlabeled images, from which most of the gain would come"
        )
    if not listing.test:
        yield Finding(
            "warning",
            "there is no test part: the model is evaluated on a validation part, taken from the "
            "labels if there are ten a class on average; with fewer, and on the features of a "
            "trunk, 'train --data' hides each label once instead (cross-validation), if it can",
        )
    elif untested := [name for name, count in test.items() if not count]:
        yield Finding("warning", f"classes without any test image: {_shorten(untested)}")
    yield from _check_names(listing.classes)


def _check_domains(images: DecodedImages) -> Iterable[Finding]:
    listing = images.listing
    if not listing.test:
        yield Finding(
            "warning",
            "the target has no test images, so nothing tells how good the model is there: labels "
            "that are set aside are of the source; put some into the folder test of the target",
        )
    if listing.unused_labels:
        yield Finding(
            "warning",
            f"{listing.unused_labels:,} images of the target lie in class folders, but count as "
            "unlabeled; with source and target side by side in one folder, named alone, they would "
            "be labels",
        )
    target = [i for i in (*listing.labeled, *listing.unlabeled) if listing.targets[i]]
    if lost := name_lost_classes({listing.labels[i] for i in target}, listing.classes):
        yield Finding("warning", lost)
    source_is_gray = _looks_gray(images, listing.labeled_source)
    if source_is_gray != _looks_gray(images, target):
        gray, color = ("source", "target") if source_is_gray else ("target", "source")
        yield Finding(
            "warning",
            f"the {gray} is gray and the {color} in color; both are learned in color, and "
            "--set data.channels=1 makes both gray",
        )


def _looks_gray(images: DecodedImages, indices: Sequence[int]) -> bool:
    """Whether none of these images, of many some of all classes, has color."""
    some = np.array(indices[:: math.ceil(len(indices) / _LOOKED_AT)])
    pixels = images.pixels[images.rows[some]]
    return bool((pixels == pixels[:, :1]).all())


def _check_names(classes: Sequence[str]) -> Iterable[Finding]:
    alike = defaultdict(list)
    for name in classes:
        composed = unicodedata.normalize("NFKC", name.casefold())
        alike["".join(filter(str.isalnum, composed)) or composed].append(name)
    for names in alike.values():
        if len(names) > 1:
            shown = ", ".join(map(ascii, names))  # tells spellings apart that look the same
            yield Finding("warning", f"these classes may be the same one: {shown}; join them if so")


def _check_exact_duplicates(images: DecodedImages) -> Iterable[Finding]:
    listing = images.listing
    groups = defaultdict(list)
    first = find_exact_duplicates(images.digests)
    for index in np.flatnonzero(np.bincount(first, minlength=len(first))[first] > 1).tolist():
        groups[int(first[index])].append(index)
    contradictions: list[list[int]] = []
    leaks: list[list[int]] = []
    repeated: list[list[int]] = []
    for indices in groups.values():
        is_leak = len({listing.parts[i] for i in indices}) > 1
        (leaks if is_leak else repeated).append(indices)
        if len({listing.labels[i] for i in indices} - {-1}) > 1:
            contradictions.append(indices)
    if contradictions:
        yield _make_finding(
            "error",
            f"images that have two labels: {len(contradictions):,}; keep the right one",
            listing,
            contradictions,
        )
    if leaks:
        yield _make_finding(
            "warning",
            f"images that are in the test and in training: {len(leaks):,}, which makes the test "
            "result too good; take them out of one of the two",
            listing,
            leaks,
        )
    if repeated:
        yield _make_finding(
            "warning",
            f"images that are there more than once: {len(repeated):,}; keep one of each",
            listing,
            repeated,
        )


def _check_near_duplicates(images: DecodedImages) -> Iterable[Finding]:
    listing = images.listing
    leaks, pairs = _pair_near_duplicates(images)
    labels = np.array(listing.labels)[pairs]
    doubtful = (labels >= 0).all(axis=1) & (labels[:, 0] != labels[:, 1])
    if len(leaks):
        yield _make_finding(
            "warning",
            f"test images that look like a training image: {len(leaks):,}, which may make the "
            "test result too good; look at them, and keep copies of one picture on one side",
            listing,
            leaks,
        )
    if doubtful.any():
        yield _make_finding(
            "warning",
            f"pairs of images that look the same but have two labels: {doubtful.sum():,}; look "
            "at them",
            listing,
            pairs[doubtful],
        )
    if not doubtful.all():
        yield _make_finding(
            "warning",
            f"pairs of training images that may be the same, by their shades: "
            f"{(~doubtful).sum():,}; if they are, keep one of each",
            listing,
            pairs[~doubtful],
        )


def _pair_near_duplicates(images: DecodedImages) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find similar images: pairs of a test and a training image, and pairs of training images."""
    listing, digests = images.listing, images.digests
    kinds = np.full(len(listing), _UNLABELED)
    kinds[listing.labeled], kinds[listing.test] = _LABELED, _TEST
    match = find_near_duplicates(images.chunks(_CHUNK), kinds, count=3)
    match[digests[match] == digests[:, None]] = -1  # exact duplicates are reported elsewhere
    match = match[:, [_LABELED, _UNLABELED]]
    rows, columns = np.nonzero(match >= 0)
    pairs = np.stack([rows, match[rows, columns]], axis=1)
    tested = kinds[rows] == _TEST
    _, first = np.unique(rows[tested], return_index=True)
    return pairs[tested][first], np.unique(np.sort(pairs[~tested], axis=1), axis=0)


def _check_pixels(images: DecodedImages) -> Iterable[Finding]:
    size = images.pixels.shape[-1]
    short, long = images.sizes.min(axis=1), images.sizes.max(axis=1)
    typical = float(np.median(short))
    odd = (short > _ODD * typical) | ((short >= _TINY) & (short * _ODD < typical))
    for is_so, kind, advice in (
        (_find_constant(images), "of one color everywhere", "remove them"),
        (short < _TINY, f"of less than {_TINY} pixels a side", "look whether they are whole"),
        (
            (short >= _TINY) & (short * _ENLARGED < size),
            f"that are enlarged more than {_ENLARGED} times at {size} pixels a side",
            "a smaller image size suits them",
        ),
        (
            odd & (odd.mean() <= _SELDOM),
            f"of another size than most, {typical:,.0f} pixels on the short side, by a factor of "
            f"{_ODD} or more",
            f"they have up to {short[odd].max(initial=0):,}, look whether they belong here",
        ),
        (
            long > _LONG * short,
            f"more than {_LONG} times as long as wide",
            "only the square in the middle is used, crop them to what matters",
        ),
    ):
        indices = np.flatnonzero(is_so).tolist()
        if indices:
            text = f"images {kind}: {len(indices):,} of {len(short):,}; {advice}"
            yield _make_finding("warning", text, images.listing, [[i] for i in indices])


def _find_constant(images: DecodedImages) -> NDArray[np.bool_]:
    """Return (N,) bool: whether every channel has a single value."""
    chunks = images.chunks(_CHUNK)
    return np.concatenate([(c == c[..., :1, :1]).all(axis=(1, 2, 3)) for c in chunks])


def _make_finding(
    severity: Literal["error", "warning"],
    message: str,
    listing: Listing,
    groups: Iterable[Sequence[int]] | NDArray[np.int64],
) -> Finding:
    files = tuple(tuple(listing.paths[i] for i in indices) for indices in groups)
    return Finding(severity, message, files)


def _shorten(names: Sequence[str], shown: int = 5) -> str:
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more
