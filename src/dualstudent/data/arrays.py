"""Data from Python: arrays and PyTorch datasets."""

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from dualstudent.data.features import FeaturePerturbation, FeatureSamples, Standardization
from dualstudent.data.images.decoding import UnreadableImage, convert_image
from dualstudent.data.images.listing import name_lost_classes
from dualstudent.data.prepared import PreparedData
from dualstudent.data.samples import ImageSamples, Samples
from dualstudent.data.transforms.normalization import Normalization
from dualstudent.data.transforms.policy import Transforms
from dualstudent.errors import DataWarning, UserError

LabelsLike = ArrayLike | Sequence[object]
"""One label per sample, of any type; −1, None or NaN where unknown."""

_IMAGES_AT_A_TIME = 4096
_USUAL_CHANNELS = (1, 3, 4)
_UNKNOWN_AS_TEXT = ("-1", "-1.0", "nan")


def prepare_arrays(
    X: ArrayLike | Dataset[Any],
    y: LabelsLike | None = None,
    test: tuple[ArrayLike, LabelsLike] | Dataset[Any] | None = None,
    transforms: Transforms | None = None,
    normalization: Normalization | None = None,
    perturbation: FeaturePerturbation | None = None,
    strong_perturbation: FeaturePerturbation | None = None,
    sample_domain: ArrayLike | None = None,
) -> PreparedData:
    """Prepare arrays or PyTorch datasets for :func:`dualstudent.train`.

    The unsupervised terms use all samples, with and without a label, so that an epoch is one
    pass over all. With two domains they use all of the target.

    Args:
        X: images (N, H, W) or (N, H, W, channels), bytes or floats in [0, 1]; or feature vectors
            (N, features); or a dataset of (sample, label) pairs, see :func:`arrays_from_dataset`.
        y: (N,), labels of any type; −1, None or NaN where unknown. Not used with a dataset.
        test: samples and labels to evaluate on, all labels known; default: none.
        transforms: perturbations of images; default: none.
        normalization: normalization of images.
        perturbation: perturbation of feature vectors; default: none.
        strong_perturbation: perturbation of strong views of feature vectors; default: none.
        sample_domain: (N,), as in skada: positive for samples of the source domain, negative for
            those of the target. Either may have labels; those of the source have some of every
            class. Default: one domain.

    Raises:
        UserError: if samples and labels do not fit together.

    Example:
        >>> data = prepare_arrays([[0.0, 1.0], [2.0, 3.0], [4.0, 6.0]], ["no", "yes", None])
        >>> data.classes, data.labels.tolist(), data.labeled.tolist()
        (('no', 'yes'), [0, 1, -1], [0, 1])
    """
    if isinstance(X, Dataset):
        X, y = arrays_from_dataset(X)
    if isinstance(test, Dataset):
        test = arrays_from_dataset(test)
    if y is None:
        raise UserError("y is missing: labels, with -1 where unknown")
    classes, labels = encode_labels(y)
    views = (transforms, normalization, perturbation, strong_perturbation)
    train = make_samples(X, *views)
    if len(train) != len(labels):
        raise UserError(f"X has {len(train)} samples but y {len(labels)} labels")
    if test is not None and not (isinstance(test, tuple | list) and len(test) == 2):
        raise UserError("test must be a pair (X, y) of samples and labels, or a dataset")
    others, their_labels = (np.asarray(X)[:0], ()) if test is None else test
    scale = train.standardization if isinstance(train, FeatureSamples) else None
    tested = make_samples(others, *views, scale)
    test_labels = _encode_test_labels(their_labels, classes)
    if tested.shape != train.shape or len(tested) != len(test_labels):
        raise UserError(
            f"test: {len(tested)} samples of shape {tested.shape} with {len(test_labels)} labels; "
            f"the training samples have shape {train.shape}"
        )
    labeled = (labels >= 0).nonzero().squeeze(1)
    names, used = tuple(str(each) for each in classes), torch.arange(len(labels))
    is_target = None
    if sample_domain is not None:
        is_target = encode_domains(sample_domain, labels, names)
        used = used[is_target]
    return PreparedData(
        names, train, labels, labeled, used, tested, test_labels, is_target=is_target
    )


def encode_domains(sample_domain: ArrayLike, labels: Tensor, classes: Sequence[str]) -> Tensor:
    """Find the samples of the target: (N,) bool.

    Args:
        sample_domain: (N,), positive for the source, negative for the target.
        labels: (N,) int64, −1 where unknown.
        classes: their names, for messages.

    Raises:
        UserError: if a domain has no samples, or the source no labels of a class.

    Example:
        >>> encode_domains([1, 1, -2], torch.tensor([0, 1, -1]), ["no", "yes"])
        tensor([False, False,  True])
    """
    domains = np.asarray(sample_domain)
    if domains.shape != (len(labels),) or domains.dtype.kind not in "iuf":
        raise UserError(
            f"sample_domain must hold one number for each of the {len(labels)} samples: positive "
            "for the source, negative for the target"
        )
    if not (np.isfinite(domains).all() and (domains != 0).all()):
        raise UserError(
            "sample_domain: use positive numbers for the source, negative ones for the "
            "target; 0 and NaN are neither"
        )
    is_target = torch.from_numpy(domains < 0)
    for name, sign, part in (("source", "positive", ~is_target), ("target", "negative", is_target)):
        if not part.any():
            raise UserError(f"sample_domain: the {name} has no samples; none is {sign}")
    known = set(labels[~is_target].tolist())
    if lacking := [name for code, name in enumerate(classes) if code not in known]:
        raise UserError(
            f"y: no sample of the source has the label {', '.join(lacking)}, which the target has; "
            "label some of the source, or use one domain"
        )
    if lost := name_lost_classes(set(labels[is_target].tolist()), classes):
        warnings.warn(f"sample_domain: {lost}", DataWarning, stacklevel=3)
    return is_target


def encode_labels(y: LabelsLike) -> tuple[NDArray[Any], Tensor]:
    """Find the classes, and encode each label as the number of its class.

    Unknown labels are −1, None, NaN, and what NumPy makes of these among strings: ``"-1"``,
    ``"-1.0"``, ``"nan"``.

    Returns:
        (C,) the sorted classes, in the type of ``y``, and (N,) int64, −1 where unknown.

    Raises:
        UserError: if fewer than two classes are known.

    Example:
        >>> classes, codes = encode_labels(["dog", "cat", -1])
        >>> classes.tolist(), codes.tolist()
        (['cat', 'dog'], [1, 0, -1])
    """
    from sklearn.utils.multiclass import check_classification_targets

    labels = np.asarray(y)
    if labels.ndim != 1:
        raise UserError(f"y must have one dimension, one label a sample; it has {labels.ndim}")
    known = ~is_unknown(labels)
    if not known.any():
        raise UserError("y holds no label at all; a few samples of every class need one")
    found = labels[known]
    if found.dtype == object and not any(isinstance(each, str) for each in found):
        found = np.array(found.tolist())  # numbers in an object array, because None is among them
    if found.dtype.kind == "f" and np.isinf(found).any():
        raise UserError("Input y contains infinity; a label is a whole number or a name")
    try:
        check_classification_targets(found)
        classes, codes = np.unique(found, return_inverse=True)
    except TypeError as error:
        raise UserError(f"y mixes labels that cannot be ordered ({error}); use one kind") from error
    if len(classes) < 2:
        raise UserError(
            f"y holds labels of one class only, {classes[0]}; a classifier needs two or more "
            "(-1 means that a label is unknown)"
        )
    encoded = torch.full((len(labels),), -1)
    encoded[torch.from_numpy(known)] = torch.from_numpy(codes)
    return classes, encoded


def make_samples(
    X: ArrayLike,
    transforms: Transforms | None = None,
    normalization: Normalization | None = None,
    perturbation: FeaturePerturbation | None = None,
    strong_perturbation: FeaturePerturbation | None = None,
    standardization: Standardization | None = None,
) -> Samples:
    """Make samples from images, or from feature vectors if ``X`` has two dimensions.

    Args:
        X: images or feature vectors, see :func:`prepare_arrays`.
        transforms: perturbations of images.
        normalization: normalization of images.
        perturbation: perturbation of feature vectors.
        strong_perturbation: perturbation of their strong views.
        standardization: standardization of feature vectors; default: measured on ``X``.
    """
    array = np.asarray(X)
    if array.ndim == 2:
        scale = standardization or Standardization.measure(array)
        weak = perturbation or FeaturePerturbation()
        return FeatureSamples(scale.apply(array), weak, scale, strong_perturbation)
    return ImageSamples(
        _to_pixels(array), transforms or Transforms(), normalization or Normalization()
    )


def arrays_from_dataset(dataset: Dataset[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Read all (sample, label) pairs of a PyTorch dataset once.

    Args:
        dataset: needs a length. A sample is a PIL image (converted like files, see
            :func:`~dualstudent.data.images.decoding.decode`), an array (H, W[, channels]), a
            tensor (H, W) or (channels, H, W), or a vector. A label has any type, −1 or None
            where unknown.

    Returns:
        Images (N, H, W[, channels]) uint8 or vectors (N, features) float32, and the labels.
    """
    try:
        length = len(dataset)  # type: ignore[arg-type]
    except TypeError as error:
        raise UserError("the dataset has no length; hand over one that can be indexed") from error
    if length == 0:
        raise UserError("the dataset is empty")
    labels = np.empty(length, dtype=object)
    for index in range(length):
        sample, label = dataset[index]
        try:
            array = _to_array(sample)
        except UnreadableImage as error:
            raise UserError(f"sample {index} of the dataset: {error.reason}") from error
        if index == 0:
            samples = np.empty((length, *array.shape), array.dtype)
        if array.shape != samples.shape[1:]:
            raise UserError(
                f"sample {index} of the dataset has shape {array.shape}, the first "
                f"{samples.shape[1:]}; bring all to one size"
            )
        samples[index] = array
        labels[index] = label.item() if isinstance(label, Tensor | np.generic) else label
    return samples, labels


def _to_array(sample: Any) -> NDArray[Any]:
    if isinstance(sample, Image.Image):
        pixels = convert_image(sample)
        return pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0)
    if isinstance(sample, Tensor):
        sample = sample.permute(1, 2, 0) if sample.ndim == 3 else sample
        sample = sample.numpy(force=True)
    array = np.asarray(sample)
    return array.astype(np.float32) if array.ndim == 1 else _to_bytes(array)


def _encode_test_labels(y: LabelsLike, classes: NDArray[Any]) -> Tensor:
    number = {label: code for code, label in enumerate(classes.tolist())}
    labels = np.asarray(y).tolist()
    unknown = {str(label) for label in labels if label not in number}
    if unknown:
        raise UserError(f"test: labels {', '.join(sorted(unknown))} are not among those of y")
    return torch.tensor([number[label] for label in labels], dtype=torch.int64)


def is_unknown(labels: NDArray[Any]) -> NDArray[np.bool_]:
    """Return (N,) bool: which labels are −1, None or NaN, or what NumPy makes of them in text."""
    if labels.dtype.kind == "f":
        return np.asarray((labels == -1) | np.isnan(labels))
    if labels.dtype.kind in "US":
        return np.isin(labels.astype(str), _UNKNOWN_AS_TEXT)
    if labels.dtype != object:
        return np.asarray(labels == -1)
    return np.fromiter((_is_unknown_label(label) for label in labels), bool, len(labels))


def _is_unknown_label(label: Any) -> bool:
    if isinstance(label, float) and math.isnan(label):
        return True
    is_none = type(label).__name__ in ("NoneType", "NAType")  # NA is pandas'
    return is_none or label in (-1, *_UNKNOWN_AS_TEXT)


def _to_pixels(images: NDArray[Any]) -> Tensor:
    """Convert to (N, channels, H, W) uint8; uint8 input is not copied."""
    if images.ndim not in (3, 4):
        raise UserError(
            f"X has shape {images.shape}; use (samples, features) for vectors, or "
            "(images, height, width[, channels])"
        )
    if images.ndim == 3:
        images = images[..., None]
    elif images.shape[1] in _USUAL_CHANNELS and images.shape[3] not in _USUAL_CHANNELS:
        raise UserError(
            f"X has shape {images.shape}: the channels of an array come last; "
            "use X.transpose(0, 2, 3, 1)"
        )
    pixels = np.require(_to_bytes(images), requirements=["C", "W"])
    return torch.from_numpy(pixels).permute(0, 3, 1, 2)


def _to_bytes(images: NDArray[Any]) -> NDArray[np.uint8]:
    """Convert to 0 … 255, in pieces, so that there is never a float copy of all images."""
    if images.dtype == np.uint8 or images.size == 0:
        return images.astype(np.uint8, copy=False)
    fractions = images.dtype.kind in "fb"
    highest = 1 if fractions else 255
    if not (images.min() >= 0 and images.max() <= highest):
        kind = "floats" if fractions else "integers"
        raise UserError(
            f"images of {kind} must have values from 0 to {highest}, found {images.min():g} to "
            f"{images.max():g}"
        )
    if not fractions:
        return images.astype(np.uint8)
    pieces = [
        np.rint(images[start : start + _IMAGES_AT_A_TIME] * np.float32(255)).astype(np.uint8)
        for start in range(0, len(images), _IMAGES_AT_A_TIME)
    ]
    return np.concatenate(pieces)
