from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from dualstudent.batch import Policy
from dualstudent.data import file_samples
from dualstudent.data.broken import BrokenSamples
from dualstudent.data.file_samples import FileSamples
from dualstudent.data.images import decoding
from dualstudent.data.sources.imagenet import load_imagenet
from dualstudent.data.transforms.normalization import Normalization, normalize
from dualstudent.data.transforms.policy import Draw, Transform, Transforms, perturb
from dualstudent.errors import UserError
from dualstudent.generators import make_generator
from tests.support.imagenet import warns_of_the_count, write_imagenet

pytestmark = warns_of_the_count

LINE = Transforms(
    weak=Transform(random_resized_crop=True, flip=True, jitter=(0.4, 0.4, 0.4, 0.1), rotate=10)
)
SCALE = Normalization(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
POSITIONS = torch.tensor([7, 0, 11, 7])


def to_tensor(path: Path) -> torch.Tensor:
    return torch.from_numpy(decoding.decode(path, channels=3))[None]


def drawn(seed: int) -> Draw:
    return Draw("weak", make_generator(seed))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_imagenet(tmp_path, train=3, val=1)


@pytest.fixture
def samples(folder: Path) -> FileSamples:
    return FileSamples(load_imagenet("train", folder), 32, LINE, SCALE)


def paths(folder: Path) -> list[Path]:
    return sorted((folder / "imagenet" / "train").glob("*/*.JPEG"))


def test_a_clean_view_is_the_normalized_centre(samples: FileSamples, folder: Path) -> None:
    (views,) = samples.make_views(POSITIONS, [None])

    assert views.shape == (4, 3, 32, 32)
    assert views.dtype == torch.float32
    assert views.is_contiguous(memory_format=torch.channels_last)
    mean, std = np.array(SCALE.mean), np.array(SCALE.std)
    for index, view in zip(POSITIONS.tolist(), views, strict=True):
        image = Image.open(paths(folder)[index])
        side, (width, height) = min(image.size), image.size
        left, top = (width - side) // 2, (height - side) // 2
        square = image.crop((left, top, left + side, top + side))
        square = square.resize((37, 37), Image.Resampling.BICUBIC)  # 32 · 256 / 224, rounded
        expected = (np.asarray(square)[2:34, 2:34] / 255 - mean) / std
        distance = np.abs(view.permute(1, 2, 0).numpy() - expected) * std * 255
        assert distance.max() <= 1.01  # gray levels, of rounding


def test_pictures_are_the_clean_views_as_bytes(samples: FileSamples) -> None:
    (views,) = samples.make_views(POSITIONS, [None])
    pictures = samples.read_pixels(POSITIONS)
    assert pictures is not None
    mean, std = (torch.tensor(each)[:, None, None] for each in (SCALE.mean, SCALE.std))
    assert torch.equal(pictures, (255 * (views * std + mean)).round().to(torch.uint8))


def test_a_perturbed_view_is_a_function_of_the_generator(
    samples: FileSamples, folder: Path
) -> None:
    (views,) = samples.make_views(POSITIONS, [drawn(5)])

    numbers = LINE.weak.draw(4, make_generator(5))
    photos = [to_tensor(paths(folder)[index]) for index in POSITIONS.tolist()]
    rows = [{key: table[row : row + 1] for key, table in numbers.items()} for row in range(4)]
    pixels = [LINE.weak.apply(*pair, size=32) for pair in zip(photos, rows, strict=True)]
    assert torch.equal(views, normalize(torch.cat(pixels), SCALE))
    assert not torch.equal(views[0], views[3])  # the same photo, perturbed independently


def test_all_views_come_from_one_decoding(
    samples: FileSamples, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = [samples.make_views(POSITIONS, [None])[0], samples.make_views(POSITIONS, [drawn(1)])[0]]
    decoded: list[Path] = []

    def decode(path: Path, channels: int) -> object:
        decoded.append(path)
        return decoding.decode(path, channels=3)

    monkeypatch.setattr(file_samples, "decode", decode)

    together = samples.make_views(POSITIONS, [None, drawn(1), drawn(2)])

    assert len(decoded) == len(POSITIONS)
    assert torch.equal(together[0], alone[0])
    assert torch.equal(together[1], alone[1])
    assert not torch.equal(together[1], together[2])


def test_views_travel_as_bytes(samples: FileSamples) -> None:
    unfinished = samples.make_raw_views(POSITIONS, [None, drawn(1)])

    assert {view.dtype for view in unfinished} == {torch.uint8}
    for view, expected in zip(
        samples.finish_views(unfinished),
        samples.make_views(POSITIONS, [None, drawn(1)]),
        strict=True,
    ):
        assert torch.equal(view, expected)


def test_all_broken_files_are_named_at_once(samples: FileSamples, folder: Path) -> None:
    cut_off, no_image, gone = paths(folder)[7], paths(folder)[0], paths(folder)[2]
    cut_off.write_bytes(cut_off.read_bytes()[:400])
    no_image.write_text("<html>404</html>")
    gone.unlink()

    with pytest.raises(BrokenSamples) as error:
        samples.make_views(torch.tensor([7, 5, 0, 2]), [None])

    assert error.value.reasons.keys() == {0, 2, 3}
    assert error.value.reasons[0].startswith(f"{cut_off}: broken or cut off")
    assert error.value.reasons[2].startswith(f"{no_image}: not an image")
    assert error.value.reasons[3] == f"{gone}: No such file or directory"


def test_gray_and_cmyk_photos_become_color(samples: FileSamples, folder: Path) -> None:
    Image.new("L", (50, 40), 128).save(paths(folder)[0], "JPEG")
    Image.new("CMYK", (50, 40), (0, 255, 255, 0)).save(paths(folder)[1], "JPEG")

    (views,) = samples.make_raw_views(torch.tensor([0, 1]), [None])

    assert views[0, :, 5, 5].tolist() == [128, 128, 128]
    assert views[1, :, 5, 5].tolist() == pytest.approx([255, 0, 0], abs=3)


def test_photos_get_noise_and_shifts_like_images_in_memory(folder: Path) -> None:
    files = load_imagenet("train", folder)
    plain = FileSamples(files, 32, Transforms(), SCALE)
    noisy = FileSamples(files, 32, Transforms(strong=Transform(noise=0.5, translate=3)), SCALE)
    (clean,) = plain.make_views(POSITIONS, [None])
    draws = [None, drawn(1), Draw("strong", make_generator(2))]
    unfinished = noisy.make_raw_views(POSITIONS, draws)
    views = noisy.finish_views(unfinished)

    assert torch.equal(views[0], clean)
    assert torch.equal(views[1], clean)  # the weak transform does nothing
    pixels = plain.read_pixels(POSITIONS)
    assert pixels is not None
    strong = Transform(noise=0.5, translate=3)
    assert torch.equal(views[2], perturb(pixels, strong, SCALE, make_generator(2)))
    assert len({view.dtype for view in unfinished}) == 1  # so that they can be joined


@pytest.mark.parametrize("policy", ["weak", "strong"])
def test_what_photos_do_not_allow_is_refused(folder: Path, policy: Policy) -> None:
    files = load_imagenet("train", folder)
    with pytest.raises(UserError, match=rf"transforms\.{policy}\.translate = 32"):
        FileSamples(files, 32, Transforms(**{policy: Transform(translate=32)}), SCALE)
    with pytest.raises(UserError, match=r"normalization\.std has 2 values"):
        FileSamples(files, 32, Transforms(), Normalization(std=(1.0, 2.0)))
