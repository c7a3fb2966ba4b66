from io import BytesIO
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset

from dualstudent.data.arrays import arrays_from_dataset, encode_labels, prepare_arrays
from dualstudent.data.features import FeaturePerturbation
from dualstudent.data.images.decoding import decode
from dualstudent.data.samples import Samples
from dualstudent.data.transforms.normalization import Normalization
from dualstudent.data.transforms.policy import Draw, Transform, Transforms
from dualstudent.errors import UserError

BYTES = np.random.default_rng(0).integers(0, 256, (6, 4, 5, 3), dtype=np.uint8)


def clean(samples: Samples) -> Tensor:
    (views,) = samples.make_views(torch.arange(len(samples)), [None])
    return views


@pytest.mark.parametrize(
    ("y", "classes", "codes"),
    [
        ([3, -1, 1], [1, 3], [1, -1, 0]),
        (["dog", "cat", -1], ["cat", "dog"], [1, 0, -1]),  # NumPy makes "-1" of it
        (np.array(["dog", -1, "cat"], dtype=object), ["cat", "dog"], [1, -1, 0]),
        (["dog", None, "cat"], ["cat", "dog"], [1, -1, 0]),
        (np.array(["b", np.nan, "a"], dtype=object), ["a", "b"], [1, -1, 0]),
        ([2.0, np.nan, 1.0], [1, 2], [1, -1, 0]),
        ([2, None, 1], [1, 2], [1, -1, 0]),
        (pd.Series(["b", None, "a"]), ["a", "b"], [1, -1, 0]),
        (pd.Series([2, None, 1], dtype="Int64"), [1, 2], [1, -1, 0]),
        ([True, False, True], [False, True], [1, 0, 1]),
        (torch.tensor([5, -1, 0]), [0, 5], [1, -1, 0]),
    ],
)
def test_labels_of_any_kind_and_unknown_ones(y: Any, classes: list[Any], codes: list[int]) -> None:
    found, encoded = encode_labels(y)
    assert found.tolist() == classes
    assert encoded.tolist() == codes


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([-1, -1], "no label"),
        ([None, None], "no label"),
        (["a", "a", None], "one class only, a;"),
        ([1, -1, 1], "one class .*-1"),
        ([[1], [2]], "one dimension"),
        ([0.5, 1.5], "Unknown label type"),
        ([0.0, np.inf], "infinity"),
        (np.array(["a", 1], dtype=object), "Unknown label type|cannot be ordered"),
    ],
)
def test_labels_that_cannot_be_learned_are_refused(y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        encode_labels(y)


def test_images_are_seen_as_they_are_whatever_their_type() -> None:
    expected = torch.from_numpy(BYTES).permute(0, 3, 1, 2) / 127.5 - 1
    y = [0, 1, -1, -1, -1, -1]
    for X in (BYTES, BYTES.astype(np.int64), BYTES / 255, (BYTES / 255).astype(np.float32)):
        data = prepare_arrays(X, y)
        torch.testing.assert_close(clean(data.train), expected)
    gray = prepare_arrays(BYTES[..., 0], y, normalization=Normalization(mean=(0.0,)))
    assert gray.train.shape == (1, 4, 5)
    torch.testing.assert_close(clean(gray.train)[:, 0], torch.from_numpy(BYTES[..., 0]) / 127.5)
    holes = prepare_arrays(BYTES > 127, y)
    assert set(clean(holes.train).flatten().tolist()) == {-1, 1}


def test_indices_of_labeled_and_unlabeled_samples() -> None:
    data = prepare_arrays(BYTES, ["b", -1, "a", -1, -1, "b"])
    assert data.classes == ("a", "b")
    assert data.labels.tolist() == [1, -1, 0, -1, -1, 1]
    assert data.labeled.tolist() == [0, 2, 5]
    assert data.unlabeled.tolist() == [0, 1, 2, 3, 4, 5]
    assert not data.fully_labeled
    assert len(data.test) == len(data.test_labels) == 0
    assert prepare_arrays(BYTES, [0, 1] * 3).fully_labeled


def test_a_test_set_is_scaled_like_the_training_data_and_coded_like_its_labels() -> None:
    X, other = [[0.0], [2.0], [4.0]], [[6.0], [2.0]]
    data = prepare_arrays(X, ["x", "y", -1], test=(other, ["y", "x"]))
    scale = float(np.std(X))
    torch.testing.assert_close(clean(data.test), torch.tensor([[4 / scale], [0.0]]))
    assert data.test_labels.tolist() == [1, 0]
    with pytest.raises(UserError, match="test: labels z "):
        prepare_arrays(X, ["x", "y", -1], test=(other, ["y", "z"]))
    with pytest.raises(UserError, match=r"shape \(2,\)"):
        prepare_arrays(X, ["x", "y", -1], test=([[1.0, 2.0]], ["y"]))
    with pytest.raises(UserError, match=r"test .*\(X, y\)"):
        prepare_arrays(X, ["x", "y", -1], test=X)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (BYTES[:5], "X .*5 samples .*y 6"),
        (BYTES.astype(float), "floats .* 0 to 1, .* 0 to 255"),
        (BYTES.astype(int) - 1, "integers .* 0 to 255, .* -1"),
        (np.where(BYTES > 3, BYTES / 255, np.nan), "floats .* 0 to 1"),
        (BYTES.transpose(0, 3, 1, 2), r"X\.transpose\(0, 2, 3, 1\)"),
        (BYTES[:, 0, 0, 0], r"\(samples, features\)"),
    ],
)
def test_arrays_that_are_not_images_are_refused(X: np.ndarray, message: str) -> None:
    with pytest.raises(UserError, match=message):
        prepare_arrays(X, [0, 1, -1, -1, -1, -1])


def test_perturbations_reach_the_views() -> None:
    y = [0, 1, -1, -1, -1, -1]
    vectors = BYTES.reshape(6, -1)
    images = prepare_arrays(BYTES, y, transforms=Transforms(weak=Transform(noise=0.1)))
    features = prepare_arrays(vectors, y, perturbation=FeaturePerturbation(noise=0.1))
    for data in (images, features):
        one, other = data.train.make_views(torch.arange(6), [None, Draw("weak", torch.Generator())])
        assert (other - one).std().item() == pytest.approx(0.1, rel=0.2)
    with pytest.raises(UserError, match="translate"):
        prepare_arrays(BYTES, y, transforms=Transforms(weak=Transform(translate=4)))


class Pictures(Dataset[Any]):
    """A simple map-style dataset."""

    def __init__(self, samples: list[Any], labels: list[Any]) -> None:
        self.samples, self.labels, self.reads = samples, labels, 0

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        self.reads += 1
        return self.samples[index], self.labels[index]


def test_datasets_of_images_arrays_and_tensors_mean_the_same() -> None:
    labels = [0, None, 1, -1, 1, 0]
    tensors = [torch.from_numpy(image).permute(2, 0, 1) for image in BYTES]
    for samples in (
        [Image.fromarray(image) for image in BYTES],
        list(BYTES),
        tensors,
        [tensor / 255 for tensor in tensors],
    ):
        dataset = Pictures(samples, labels)
        X, y = arrays_from_dataset(dataset)
        assert dataset.reads == 6
        assert np.array_equal(X, BYTES)
        assert y.tolist() == labels


def opened(image: Image.Image, kind: str, **options: object) -> tuple[Image.Image, bytes]:
    file = BytesIO()
    image.save(file, kind, **options)
    return Image.open(BytesIO(file.getvalue())), file.getvalue()


def test_images_of_a_dataset_are_decoded_like_files() -> None:
    photo = Image.fromarray(np.kron(BYTES[0], np.ones((4, 4, 1), np.uint8)))
    turned = Image.Exif()
    turned[0x0112] = 6
    alpha = Image.fromarray(
        np.arange(photo.width * photo.height, dtype=np.uint8).reshape(photo.size[::-1])
    )
    transparent = photo.copy()
    transparent.putalpha(alpha)
    wide = Image.fromarray(np.asarray(alpha).astype(np.uint16) * 257)
    for image, content in (
        opened(photo.convert("P"), "PNG", transparency=3),
        opened(transparent, "PNG"),
        opened(photo, "JPEG", exif=turned),
        opened(wide, "PNG"),
        opened(photo.convert("CMYK"), "JPEG"),
        opened(photo.convert("1"), "PNG"),
    ):
        X, _ = arrays_from_dataset(Pictures([image], [0]))
        expected = decode(content)
        assert np.array_equal(
            X[0], expected[0] if len(expected) == 1 else expected.transpose(1, 2, 0)
        )


def test_a_broken_image_of_a_dataset_is_named() -> None:
    whole, content = opened(Image.fromarray(BYTES[0]), "PNG")
    broken = Image.open(BytesIO(content[:-30]))
    with pytest.raises(UserError, match=r"sample 1 of the dataset: "):
        arrays_from_dataset(Pictures([whole, broken], [0, 1]))


def test_a_dataset_of_vectors() -> None:
    vectors, labels = torch.rand(4, 3), torch.tensor([0, 1, -1, 1])
    X, y = arrays_from_dataset(TensorDataset(vectors, labels))
    assert np.array_equal(X, vectors.numpy())
    assert encode_labels(y)[1].tolist() == [0, 1, -1, 1]


def test_datasets_that_cannot_be_read_as_one_array() -> None:
    with pytest.raises(UserError, match="empty"):
        arrays_from_dataset(Pictures([], []))
    with pytest.raises(UserError, match=r"sample 1 .*\(3, 5, 3\)"):
        arrays_from_dataset(Pictures([BYTES[0], BYTES[1, :3]], [0, 1]))


def test_color_images_have_a_fingerprint_of_their_pixels() -> None:
    images = np.random.default_rng(0).integers(0, 256, (4, 5, 6, 3), np.uint8)
    first, again = (prepare_arrays(images, [0, 1, -1, -1]).fingerprint() for _ in range(2))
    images[2, 1, 3, 0] ^= 1
    assert first == again != prepare_arrays(images, [0, 1, -1, -1]).fingerprint()
