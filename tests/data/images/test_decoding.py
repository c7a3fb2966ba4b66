"""Real files of every kind that Pillow can write, and some that it cannot."""

import io
import logging
import os
import pickle
import struct
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from dualstudent.data.images.decoding import UnreadableImage, decode, resize

Pixels = NDArray[np.uint8]


@pytest.fixture(scope="module")
def photo() -> Pixels:
    """(24, 40, 3): smooth, so that lossy formats stay close, and without any symmetry."""
    y, x = np.mgrid[0:24, 0:40]
    return np.stack([5 * x, 8 * y, 120 + 2 * x - 3 * y], axis=-1).astype(np.uint8)


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def png(width: int, height: int, depth: int, color: int, rows: bytes) -> bytes:
    """A PNG file written by hand, for what Pillow does not write."""

    def chunk(name: bytes, content: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(name + content))
        return struct.pack(">I", len(content)) + name + content + check

    header = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def channels_last(pixels: Pixels) -> NDArray[np.int64]:
    return pixels.transpose(1, 2, 0).astype(np.int64)


@pytest.mark.parametrize(
    ("kind", "options", "tolerance"),
    [
        ("PNG", {}, 0),
        ("BMP", {}, 0),
        ("TIFF", {}, 0),
        ("TIFF", {"compression": "tiff_lzw"}, 0),
        ("WEBP", {"lossless": True}, 0),
        ("WEBP", {"quality": 95}, 8),
        ("JPEG", {"quality": 95}, 8),
        ("JPEG", {"quality": 95, "progressive": True}, 8),
    ],
)
def test_color(photo: Pixels, kind: str, options: dict[str, object], tolerance: int) -> None:
    decoded = decode(encoded(Image.fromarray(photo), kind, **options))
    assert decoded.dtype == np.uint8
    assert decoded.flags.c_contiguous
    assert np.abs(channels_last(decoded) - photo).max() <= tolerance


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "GIF"])
def test_gray_stays_one_channel_unless_three_are_asked_for(photo: Pixels, kind: str) -> None:
    content = encoded(Image.fromarray(photo[..., 0]), kind)
    if kind != "GIF":  # which has palettes only
        assert np.array_equal(decode(content), photo[None, ..., 0])
    assert np.array_equal(decode(content, 3), np.stack([photo[..., 0]] * 3))


def test_color_as_gray_is_its_brightness(photo: Pixels) -> None:
    decoded = decode(encoded(Image.fromarray(photo), "PNG"), 1)
    expected = photo @ np.array([0.299, 0.587, 0.114])
    assert decoded.shape == (1, 24, 40)
    assert np.abs(decoded[0] - expected).max() <= 1


def test_black_and_white() -> None:
    drawn = np.array([[True, False, False], [False, True, True]])
    assert np.array_equal(decode(encoded(Image.fromarray(drawn), "PNG"))[0], drawn * 255)


def test_palette(photo: Pixels) -> None:
    with_palette = Image.fromarray(photo).quantize(64)
    expected = np.array(with_palette.getpalette()).reshape(-1, 3)[np.asarray(with_palette)]
    for kind in ("PNG", "GIF", "BMP", "TIFF"):
        assert np.array_equal(channels_last(decode(encoded(with_palette, kind))), expected)


def over_white(color: Pixels, alpha: Pixels) -> NDArray[np.float64]:
    opacity: NDArray[np.float64] = alpha[..., None].astype(np.float64) / 255
    return opacity * color + (1 - opacity) * 255


def test_alpha_lies_over_white(photo: Pixels) -> None:
    alpha = np.broadcast_to(np.arange(40, dtype=np.uint8) * 6, (24, 40))
    both = Image.fromarray(np.dstack([photo, alpha]))
    for kind, options in (("PNG", {}), ("TIFF", {}), ("WEBP", {"lossless": True, "exact": True})):
        decoded = channels_last(decode(encoded(both, kind, **options)))
        assert np.abs(decoded - over_white(photo, alpha)).max() <= 1


def test_gray_with_alpha_stays_gray(photo: Pixels) -> None:
    alpha = np.full((24, 40), 100, np.uint8)
    both = Image.merge("LA", [Image.fromarray(photo[..., 0]), Image.fromarray(alpha)])
    decoded = decode(encoded(both, "PNG"))
    assert len(decoded) == 1
    expected = over_white(photo[..., :1], alpha)[..., 0]
    assert np.abs(decoded[0] - expected).max() <= 1


@pytest.mark.parametrize("transparency", [1, bytes([255, 0, 51])])
def test_a_palette_with_transparency_lies_over_white(transparency: int | bytes) -> None:
    image = Image.new("P", (3, 1))
    image.putpalette([10, 20, 30, 40, 50, 60, 70, 80, 90])
    image.putdata([0, 1, 2])
    decoded = channels_last(decode(encoded(image, "PNG", transparency=transparency)))
    last = [70, 80, 90] if transparency == 1 else [218, 220, 222]  # 0.2 c + 0.8 · 255
    assert decoded.tolist() == [[[10, 20, 30], [255, 255, 255], last]]


def test_one_transparent_color(photo: Pixels) -> None:
    content = encoded(Image.fromarray(photo), "PNG", transparency=tuple(photo[3, 5].tolist()))
    decoded = channels_last(decode(content))
    assert decoded[3, 5].tolist() == [255, 255, 255]
    assert np.array_equal(decoded[4, 5], photo[4, 5])


@pytest.mark.parametrize("kind", ["JPEG", "TIFF"])
def test_cmyk(kind: str) -> None:
    ink = np.array([0, 51, 153, 0], np.uint8)  # no cyan, 20 % magenta, 60 % yellow, no black
    image = Image.fromarray(np.tile(ink, (16, 16, 1)), mode="CMYK")
    decoded = channels_last(decode(encoded(image, kind)))
    assert np.abs(decoded - [255, 204, 102]).max() <= 3


def test_16_bit_gray_is_divided_by_257() -> None:
    values = np.arange(65536, dtype=np.uint16).reshape(256, 256)
    expected = np.rint(values / 257)
    for kind in ("PNG", "TIFF"):
        decoded = decode(encoded(Image.fromarray(values), kind))
        assert decoded.shape == (1, 256, 256)
        assert np.array_equal(decoded[0], expected)


def test_a_dark_16_bit_image_stays_dark() -> None:
    values = np.arange(4096, dtype=np.uint16).reshape(64, 64) * 10
    decoded = decode(encoded(Image.fromarray(values), "PNG"))
    assert np.array_equal(decoded[0], np.rint(values / 257))


def test_16_bit_color_is_divided_by_257() -> None:
    values = np.random.default_rng(0).integers(0, 65536, (8, 8, 3)).astype(">u2")
    rows = b"".join(b"\0" + row.tobytes() for row in values)
    decoded = channels_last(decode(png(8, 8, 16, 2, rows)))
    assert np.abs(decoded - values / 257).max() <= 1


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.0, 0.5, 1.0], [0, 128, 255]),
        ([0.0, 1.5, 255.0], [0, 2, 255]),
        ([0.0, 257.0, 65535.0], [0, 1, 255]),
        ([-1.0, 0.0, 1.0], [0, 128, 255]),
        ([-3.0, -3.0, -3.0], [0, 0, 0]),
    ],
)
def test_floats_by_their_range(values: list[float], expected: list[int]) -> None:
    image = Image.fromarray(np.array([values], np.float32))
    assert decode(encoded(image, "TIFF")).tolist() == [[expected]]


def test_32_bit_integers_by_their_range() -> None:
    usual = Image.fromarray(np.array([[0, 257, 65535]], np.int32))
    assert decode(encoded(usual, "TIFF")).tolist() == [[[0, 1, 255]]]
    large = Image.fromarray(np.array([[-100_000, 0, 100_000]], np.int32))
    assert decode(encoded(large, "TIFF")).tolist() == [[[0, 128, 255]]]


def test_floats_that_are_no_numbers_are_refused() -> None:
    image = Image.fromarray(np.array([[0.0, np.nan]], np.float32))
    with pytest.raises(UnreadableImage, match="not finite"):
        decode(encoded(image, "TIFF"))


# How the stored image must be turned to stand upright, as the standard words it.
UPRIGHT: dict[int, Callable[[Pixels], Pixels]] = {
    1: lambda stored: stored,
    2: lambda stored: stored[:, ::-1],
    3: lambda stored: stored[::-1, ::-1],
    4: lambda stored: stored[::-1],
    5: lambda stored: stored.swapaxes(0, 1),
    6: lambda stored: np.rot90(stored, -1),
    7: lambda stored: stored[::-1, ::-1].swapaxes(0, 1),
    8: np.rot90,
}


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_exif_rotation(photo: Pixels, kind: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    content = encoded(Image.fromarray(photo), kind, exif=exif, quality=95)
    decoded = channels_last(decode(content))
    expected = UPRIGHT[orientation](photo)
    assert decoded.shape == expected.shape
    assert np.abs(decoded - expected).max() <= 8


def test_16_bit_and_rotation_together() -> None:
    values = np.array([[0, 257], [514, 65535], [771, 1028]], np.uint16)
    exif = Image.Exif()
    exif[0x0112] = 6
    decoded = decode(encoded(Image.fromarray(values), "PNG", exif=exif))
    assert decoded.tolist() == [[[3, 2, 0], [4, 255, 1]]]


def test_broken_exif_is_ignored(photo: Pixels, recwarn: pytest.WarningsRecorder) -> None:
    content = encoded(
        Image.fromarray(photo), "JPEG", exif=b"Exif\0\0MM\0*\0\0\0\x08\xff\xff broken"
    )
    assert decode(content).shape == (3, 24, 40)


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG", "TIFF"])
def test_the_first_frame_of_an_animation(kind: str) -> None:
    frames = [Image.new("RGB", (20, 10), color) for color in ("red", "lime", "blue")]
    content = encoded(frames[0], kind, save_all=True, append_images=frames[1:])
    decoded = channels_last(decode(content))
    assert np.abs(decoded - [255, 0, 0]).max() <= 3


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF"])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_file_that_is_cut_off_is_refused(tmp_path: Path, kind: str, share: float) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    content = encoded(Image.fromarray(noise), kind)
    path = tmp_path / "cut.jpg"
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(UnreadableImage) as refused:
        decode(path)
    assert refused.value.path == path
    assert str(refused.value) == f"{path}: {refused.value.reason}"
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b"just a text", "not an image"),
        (b"\xff\xd8\xff\xe0" + bytes(100), r"not an image|broken"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not an image"),
        (png(0, 5, 8, 0, b""), r"not an image|broken"),
        (png(20_000, 20_000, 8, 0, b""), "more than 89,478,485 pixels"),
        (png(10_000, 9_000, 8, 0, b""), "more than 89,478,485 pixels"),
    ],
    ids=["empty", "text", "start of a JPEG", "program", "zero width", "bomb", "large"],
)
def test_what_is_no_image_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "image.jpg"
    path.write_bytes(content)
    with pytest.raises(UnreadableImage, match=reason) as refused:
        decode(path)
    assert refused.value.path == path


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_an_image_too_large_is_refused_even_if_warnings_are_ignored() -> None:
    with pytest.raises(UnreadableImage, match="more than 89,478,485 pixels"):
        decode(png(10_000, 9_000, 8, 0, b""))


def test_every_damaged_file_is_refused_or_read_but_never_anything_else(photo: Pixels) -> None:
    rng = np.random.default_rng(0)
    refused = 0
    for kind in ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF"):
        content = np.frombuffer(encoded(Image.fromarray(photo), kind), np.uint8)
        for _ in range(40):
            damaged = content.copy()
            damaged[rng.integers(0, len(damaged), 10)] = rng.integers(0, 256, 10)
            try:
                assert decode(damaged.tobytes(), 3).dtype == np.uint8
            except UnreadableImage:
                refused += 1
    assert refused > 20


def test_folders_missing_files_and_pipes_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, reason in ((".", "is a folder"), ("none.png", "No such file"), ("pipe", "regular")):
        with pytest.raises(UnreadableImage, match=reason):
            decode(tmp_path / name)


def test_a_file_without_rights_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    (tmp_path / "mine.png").write_bytes(b"x")
    monkeypatch.setattr(Path, "read_bytes", denied)  # rights do not stop an administrator
    with pytest.raises(UnreadableImage, match=r"mine\.png: Permission denied"):
        decode(tmp_path / "mine.png")


def test_the_error_can_be_pickled() -> None:
    refusal = pickle.loads(pickle.dumps(UnreadableImage(Path("a.jpg"), "is a folder")))
    assert (refusal.path, refusal.reason) == (Path("a.jpg"), "is a folder")


def test_threads_do_not_disturb_each_other(photo: Pixels) -> None:
    contents = [encoded(Image.fromarray(np.roll(photo, i, 1)), "PNG") for i in range(40)]
    with ThreadPoolExecutor(8) as pool:
        decoded = list(pool.map(decode, contents))
    for i, pixels in enumerate(decoded):
        assert np.array_equal(channels_last(pixels), np.roll(photo, i, 1))


def test_resizing_takes_the_square_in_the_middle() -> None:
    stripes = np.repeat(np.arange(9, dtype=np.uint8) * 20, 10)  # nine stripes of ten columns
    wide = np.broadcast_to(stripes, (3, 30, 90)).copy()
    square = resize(wide, 30)
    assert np.array_equal(square, wide[:, :, 30:60])
    tall = wide.swapaxes(1, 2).copy()
    assert np.array_equal(resize(tall, 30), tall[:, 30:60])


def test_shrinking_averages_instead_of_picking() -> None:
    board = (np.indices((64, 64)).sum(axis=0) % 2 * 255).astype(np.uint8)[None]
    small = resize(board, 8)
    assert small.shape == (1, 8, 8)
    assert np.abs(small.astype(int) - 127).max() <= 4


def test_resizing_agrees_with_exact_averages_on_a_ramp() -> None:
    ramp = np.broadcast_to(np.linspace(0, 255, 256).astype(np.uint8), (3, 256, 256)).copy()
    small = resize(ramp, 16)
    exact = ramp.reshape(3, 16, 16, 16, 16).mean(axis=(2, 4))
    assert np.abs(small[:, :, 1:-1] - exact[:, :, 1:-1]).max() <= 1


def test_enlarging(photo: Pixels) -> None:
    large = resize(np.ascontiguousarray(photo.transpose(2, 0, 1)), 48)
    assert large.shape == (3, 48, 48)
    middle = photo[:, 8:32].astype(int)
    assert np.abs(large[:, ::2, ::2].transpose(1, 2, 0) - middle).max() <= 10


def test_libtiff_prints_no_lines_of_its_own(
    photo: Pixels, capfd: pytest.CaptureFixture[str]
) -> None:
    content = bytearray(encoded(Image.fromarray(photo), "TIFF", compression="tiff_lzw"))
    content[50:200] = b"\xff" * 150
    with pytest.raises(UnreadableImage):
        decode(bytes(content))
    assert capfd.readouterr().err == ""


def test_pillow_logs_nothing_to_the_terminal(
    photo: Pixels, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # those of pytest
    image = Image.fromarray(photo)
    content = encoded(image, "TIFF").replace(
        struct.pack("<HHIH", 277, 3, 1, 3), struct.pack("<HHIH", 277, 3, 1, 56832)
    )
    with pytest.raises(UnreadableImage):
        decode(content)
    assert capfd.readouterr().err == ""
