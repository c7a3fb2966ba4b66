import errno
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from dualstudent.data.images import cache
from dualstudent.data.images.cache import DecodedImages, decode_images, measure_images
from dualstudent.data.images.decoding import decode, read_image_file, resize
from dualstudent.data.images.folders import list_folder
from dualstudent.data.images.listing import Listing
from dualstudent.data.images.tables import list_table
from dualstudent.errors import UserError
from dualstudent.signals import Interrupted
from tests.support.pictures import save_picture


class Recorder:
    def __init__(self) -> None:
        self.calls: list[tuple[int, ...]] = []

    def on_start(self, step: int, total: int) -> None:
        self.calls.append((step, total))

    def on_step(self, step: int) -> None:
        self.calls.append((step,))


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat new files as unchanged for some seconds."""
    monkeypatch.setattr(cache, "_NS_UNTIL_SETTLED", 0)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for number in range(10):
        save_picture(tmp_path / "data" / "ab"[number % 2] / f"{number}.jpg", side=20 + number)
        save_picture(tmp_path / "data" / "unlabeled" / f"{number}.png", 20 + number, side=40)
    return tmp_path / "data"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that are read, one after the other."""
    paths: list[Path] = []

    def note(path: Path) -> bytes:
        paths.append(path)
        return read_image_file(path)

    monkeypatch.setattr(cache, "read_image_file", note)
    return paths


@pytest.fixture
def decodings(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The contents that are decoded, one after the other."""
    contents: list[bytes] = []

    def note(content: bytes, channels: Any) -> Any:
        contents.append(content)
        return decode(content, channels)

    monkeypatch.setattr(cache, "decode", note)
    return contents


def decoded(data: Path, folder: Path, size: int = 16) -> DecodedImages:
    return decode_images(list_folder(data), size, folder=folder)


def pixels_of(images: DecodedImages) -> Any:
    return np.concatenate(list(images.chunks(7)))


def check_rows(images: DecodedImages) -> None:
    """Check that every image belongs to its path."""
    rows = zip(images.listing.paths, pixels_of(images), images.sizes, strict=True)
    for path, pixels, size in rows:
        whole = decode(path, 3)
        assert np.array_equal(pixels, resize(whole, 16))
        assert size.tolist() == list(whole.shape[1:])


def store_of(folder: Path) -> Path:
    (store,) = folder.iterdir()
    return store


def test_every_image_is_where_its_path_is(data: Path, folder: Path) -> None:
    images = decoded(data, folder)
    assert images.listing == list_folder(data)
    assert pixels_of(images).shape == (20, 3, 16, 16)
    check_rows(images)


def test_photos_whose_short_side_is_the_wanted_one_are_cropped(folder: Path) -> None:
    photo = np.random.default_rng(0).integers(0, 256, (30, 20, 3), np.uint8)
    for label in "ab":
        (folder / "data" / label).mkdir(parents=True)
        Image.fromarray(photo).save(folder / "data" / label / "photo.png")
    images = decode_images(list_folder(folder / "data"), 20, folder=folder)
    assert np.array_equal(images.pixels[images.rows[0]], photo[5:25].transpose(2, 0, 1))


def test_gray_on_request(data: Path, folder: Path) -> None:
    images = decode_images(list_folder(data), 8, channels=1, folder=folder)
    gray = pixels_of(images)
    assert gray.shape == (20, 1, 8, 8)
    assert np.array_equal(gray[3], resize(decode(images.listing.paths[3], 1), 8))


def test_pixels_are_mapped_and_cannot_be_changed(data: Path, folder: Path) -> None:
    images = decoded(data, folder)
    assert isinstance(images.pixels, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        images.pixels[0] = 0


def test_images_may_be_larger_than_any_memory(data: Path, folder: Path) -> None:
    decoded(data, folder)
    store = store_of(folder)
    index = (store / "index.json").read_text()
    os.truncate(store / "pixels", 2**40)  # a sparse file takes no space
    row = 2**40 // (3 * 16 * 16) - 1
    (store / "index.json").write_text(index.replace(", 19, [", f", {row}, [", 1))
    images = decoded(data, folder)
    assert len(images.pixels) == row + 1
    assert not pixels_of(images)[-1].any()


def test_a_second_start_reads_and_decodes_nothing(
    data: Path, folder: Path, read: list[Path], decodings: list[bytes]
) -> None:
    first = decoded(data, folder)
    assert sorted(read) == sorted(list_folder(data).paths)  # each of them once
    assert len(decodings) == 20
    again = decoded(data, folder)
    assert (len(read), len(decodings)) == (20, 20)
    assert np.array_equal(again.rows, first.rows)
    assert np.array_equal(again.digests, first.digests)
    check_rows(again)


def test_one_more_label_decodes_nothing_and_one_more_image_only_that(
    data: Path, folder: Path, read: list[Path], decodings: list[bytes]
) -> None:
    decoded(data, folder)
    read.clear()
    decodings.clear()
    (data / "unlabeled" / "3.png").rename(data / "a" / "3.png")
    check_rows(decoded(data, folder))
    assert (read, decodings) == ([data / "a" / "3.png"], [])  # it may be another file
    check_rows(decoded(data, folder))
    assert len(read) == 1
    new = save_picture(data / "b" / "new.jpg", side=77)
    (data / "unlabeled" / "5.png").unlink()
    check_rows(decoded(data, folder))
    assert (read[1:], decodings) == ([new], [new.read_bytes()])


def test_a_renamed_folder_and_an_image_from_elsewhere_decode_nothing_again(
    data: Path, folder: Path, read: list[Path], decodings: list[bytes]
) -> None:
    decoded(data, folder)
    data = data.rename(data.parent / "renamed")
    read.clear()
    decodings.clear()
    check_rows(decoded(data, folder))
    new = save_picture(data.parent / "elsewhere" / "new.png", seed=50)
    table = data.parent / "t.csv"
    table.write_text(f"path,label\n{new},a\nrenamed/a/0.jpg,a\nrenamed/b/1.jpg,b\n")
    check_rows(decode_images(list_table(table), 16, folder=folder))
    assert (read, decodings) == ([new], [new.read_bytes()])


def test_a_new_label_or_table_of_known_files_reads_nothing(
    data: Path, folder: Path, read: list[Path]
) -> None:
    decoded(data, folder)
    read.clear()
    table = data.parent / "t.csv"
    for label in ("", "a"):
        lines = [f"data/unlabeled/{i}.png,{'ab'[i % 2] if i > 3 else label}" for i in range(10)]
        table.write_text("\n".join(["path,label", *lines, "data/a/0.jpg,a"]))
        check_rows(decode_images(list_table(table), 16, folder=folder))
    assert read == []


def test_copies_of_a_file_are_all_remembered(data: Path, folder: Path, read: list[Path]) -> None:
    for name in ("x", "y", "z"):
        shutil.copy(data / "a" / "0.jpg", data / "b" / f"{name}.jpg")
        check_rows(decoded(data, folder))
        read.clear()
        decoded(data, folder)
        assert read == []


def test_other_content_is_noticed_though_size_and_time_are_the_same(
    data: Path, folder: Path
) -> None:
    path = list_folder(data).paths[5]
    size = path.stat().st_size
    for seed in (98, 99):
        save_picture(path, seed=seed, side=25)
        path.write_bytes(path.read_bytes().ljust(2 * size, b"."))
        os.utime(path, (1, 1))  # the modification time can be set
        check_rows(decoded(data, folder))


def test_files_so_new_that_they_could_change_unnoticed_are_read_again_but_not_decoded(
    data: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    read: list[Path],
    decodings: list[bytes],
) -> None:
    monkeypatch.setattr(cache, "_NS_UNTIL_SETTLED", 10**18)
    decoded(data, folder)
    check_rows(decoded(data, folder))
    assert (len(read), len(decodings)) == (40, 20)
    monkeypatch.setattr(cache, "_NS_UNTIL_SETTLED", 0)
    decoded(data, folder)
    decoded(data, folder)
    assert (len(read), len(decodings)) == (60, 20)


def test_a_file_that_changes_meanwhile_is_read_again(data: Path, folder: Path) -> None:
    path = data / "a" / "2.jpg"

    class Meddler(Recorder):
        def on_step(self, step: int) -> None:
            if step == 20:
                save_picture(path, seed=7)

    decode_images(list_folder(data), 16, folder=folder, progress=Meddler())
    check_rows(decoded(data, folder))


def test_other_sizes_channels_and_decoders_have_their_own_pixels(
    data: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, listing = decoded(data, folder), list_folder(data)
    assert decode_images(listing, 17, folder=folder).pixels.shape == (20, 3, 17, 17)
    assert decode_images(listing, 16, 1, folder=folder).pixels.shape == (20, 1, 16, 16)
    turned = decode_images(listing.select(range(19, -1, -1)), 16, folder=folder)
    assert np.array_equal(pixels_of(turned), pixels_of(first)[::-1])
    assert len(list(folder.iterdir())) == 3
    monkeypatch.setattr(cache, "DECODER", "another")
    decoded(data, folder)
    assert len(list(folder.iterdir())) == 4


def test_only_stores_unused_for_a_month_are_removed(
    data: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded(data, folder, 10)
    old = store_of(folder)
    images = decoded(data, folder, 11)
    (folder / "mine").mkdir()
    month = time.time() - 31 * 24 * 3600
    for path in folder.iterdir():
        os.utime(path, (month, month))
    decoded(data, folder, 11)  # in use again
    decoded(data, folder, 12)
    assert not old.exists()
    assert (folder / "mine").exists()
    assert len(list(folder.glob("images-*"))) == 2
    shutil.rmtree(folder)
    assert pixels_of(images).any()  # mapped files stay readable


def test_unreadable_files_are_left_out_and_named(
    data: Path, folder: Path, decodings: list[bytes]
) -> None:
    (data / "a" / "2.jpg").write_text("a text")
    cut = data / "unlabeled" / "7.png"
    cut.write_bytes(cut.read_bytes()[:100])
    for _ in range(2):  # decoded, then found
        images = decoded(data, folder)
        assert [file.path for file in images.unreadable] == [data / "a" / "2.jpg", cut]
        assert "not an image" in images.unreadable[0].reason
        assert len(images.listing) == len(images.rows) == len(images.digests) == 18
        check_rows(images)
    assert len(decodings) == 20


def test_a_file_that_became_readable_is_decoded(data: Path, folder: Path) -> None:
    listing = list_folder(data)
    (data / "a" / "2.jpg").unlink()
    images = decode_images(listing, 16, folder=folder)
    assert [file.reason for file in images.unreadable] == [os.strerror(errno.ENOENT)]
    save_picture(data / "a" / "2.jpg")
    assert decode_images(listing, 16, folder=folder).unreadable == ()


def test_a_class_without_any_readable_image_is_refused(data: Path, folder: Path) -> None:
    for path in (data / "b").iterdir():
        path.write_text("a text")
    with pytest.raises(UserError, match="'a'"):
        decoded(data, folder)


def test_nothing_readable_at_all_is_refused(tmp_path: Path, folder: Path) -> None:
    paths = (tmp_path / "a.png", tmp_path / "b.png")
    for path in paths:
        path.write_text("a text")
    listing = Listing("mine", paths, (0, 1), ("train", "train"), ("a", "b"))
    assert measure_images(listing, folder=folder)[0] == 0
    with pytest.raises(UserError, match=r"2 files .*a\.png: "):
        decode_images(listing, 8, folder=folder)


def test_digests_tell_equal_pixels_whatever_the_file(tmp_path: Path, folder: Path) -> None:
    save_picture(tmp_path / "a" / "1.png", seed=1)
    save_picture(tmp_path / "a" / "2.png", seed=2)
    with Image.open(tmp_path / "a" / "1.png") as image:
        (tmp_path / "b").mkdir()
        image.save(tmp_path / "b" / "1.bmp")
        image.crop((0, 0, 20, 19)).save(tmp_path / "b" / "2.png")
    digests = decoded(tmp_path, folder).digests.tolist()
    assert digests[0] == digests[2]
    assert len(set(digests)) == 3


def test_digests_tell_shapes_apart(tmp_path: Path, folder: Path) -> None:
    for name, size in (("a", (20, 10)), ("b", (10, 20))):
        (tmp_path / name).mkdir()
        Image.new("RGB", size, "red").save(tmp_path / name / "1.png")
    assert len(set(decoded(tmp_path, folder).digests.tolist())) == 2


def test_progress_counts_new_files(data: Path, folder: Path) -> None:
    recorder = Recorder()
    decode_images(list_folder(data), 16, folder=folder, progress=recorder)
    assert recorder.calls == [(0, 20), *((step,) for step in range(1, 21))]
    recorder = Recorder()
    decode_images(list_folder(data), 16, folder=folder, progress=recorder)
    assert recorder.calls == []


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("pixels", lambda content: content[:1000]),
        ("pixels", lambda content: b""),
        ("pixels", None),
        ("index.json", lambda content: content[:1000]),
        ("index.json", lambda content: b""),
        ("index.json", lambda content: b"[[1]]"),
        ("index.json", lambda content: b"7"),
        ("index.json", lambda content: b"\xff"),
        ("index.json", None),
    ],
)
def test_a_damaged_store_is_filled_again_while_others_use_it(
    data: Path, folder: Path, name: str, damage: Callable[[bytes], bytes] | None
) -> None:
    decoded(data, folder)
    path = store_of(folder) / name
    content = path.read_bytes()
    path.unlink()
    if damage is not None:
        path.write_bytes(damage(content))
    check_rows(decoded(data, folder))


def test_after_ctrl_c_the_next_start_goes_on_where_it_was(
    data: Path, folder: Path, decodings: list[bytes]
) -> None:
    class Impatient(Recorder):
        def on_step(self, step: int) -> None:
            if step == 5:
                signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupted, match="5 of 20 files"):
        decode_images(list_folder(data), 16, folder=folder, progress=Impatient())
    recorder = Recorder()
    images = decode_images(list_folder(data), 16, folder=folder, progress=recorder)
    assert recorder.calls[0] == (0, 15)
    check_rows(images)


def test_a_killed_process_leaves_nothing_that_is_used(data: Path, folder: Path) -> None:
    program = f"""
import os, signal
from pathlib import Path
from dualstudent.data.images.cache import decode_images
from dualstudent.data.images.folders import list_folder

class Deadly:
    def on_start(self, step, total):
        pass
    def on_step(self, step):
        if step == 9:
            os.kill(os.getpid(), signal.SIGKILL)

# No "if __name__": own images can be used from any script.
decode_images(list_folder(Path({str(data)!r})), 64, folder=Path({str(folder)!r}), progress=Deadly())
"""
    script = data.parent / "script.py"
    script.write_text(program)
    killed = subprocess.run([sys.executable, script], capture_output=True, check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert (store_of(folder) / "pixels").stat().st_size > 0
    images = decoded(data, folder, 64)
    assert (store_of(folder) / "pixels").stat().st_size == 20 * 3 * 64 * 64
    assert len(images.rows) == 20


def test_rows_beyond_the_index_are_cut_off(data: Path, folder: Path) -> None:
    decoded(data, folder)
    with (store_of(folder) / "pixels").open("ab") as pixels:
        pixels.write(b"half a row")
    check_rows(decoded(data, folder))
    save_picture(data / "a" / "new.png", seed=50)
    check_rows(decoded(data, folder))
    assert (store_of(folder) / "pixels").stat().st_size == 21 * 3 * 16 * 16


def test_two_at_once_decode_every_file_once(
    data: Path, folder: Path, decodings: list[bytes]
) -> None:
    second = threading.Thread(target=decoded, args=(data, folder))

    class First(Recorder):
        def on_step(self, step: int) -> None:
            if step == 3:
                second.start()

    check_rows(decode_images(list_folder(data), 16, folder=folder, progress=First()))
    second.join()
    assert len(decodings) == 20


def test_a_waiting_process_finds_what_another_one_added(
    data: Path, folder: Path, read: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def meanwhile(file: Any, operation: int) -> None:
        monkeypatch.setattr(fcntl, "flock", lambda *_: None)
        decoded(data, folder)

    monkeypatch.setattr(fcntl, "flock", meanwhile)
    check_rows(decoded(data, folder))
    assert len(read) == 20


def test_a_full_disk_is_one_error_and_takes_no_space(
    data: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listing = list_folder(data)
    decode_images(listing.select(range(12)), 16, folder=folder)

    def fail(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(UserError, match=r"No space left.*DUALSTUDENT_CACHE"):
            decode_images(listing, 16, folder=folder)
    assert (store_of(folder) / "pixels").stat().st_size == 12 * 3 * 16 * 16
    check_rows(decode_images(listing, 16, folder=folder))


def test_a_folder_that_cannot_be_made_is_named(data: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"/file/cache.*DUALSTUDENT_CACHE"):
        decoded(data, tmp_path / "file" / "cache")


def test_a_read_only_cache_works(data: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded(data, folder)

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "utime", refuse)
    monkeypatch.setattr(fcntl, "flock", refuse)
    check_rows(decoded(data, folder))
    save_picture(data / "a" / "new.png", seed=50)
    with pytest.raises(UserError, match="Permission denied"):
        decoded(data, folder)


def test_images_are_measured_without_decoding_and_the_second_time_without_reading(
    data: Path, folder: Path, decodings: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    save_picture(data / "a" / "wide.png", side=200)
    (data / "a" / "broken.png").write_text("a text")
    listing = list_folder(data)
    assert measure_images(listing, folder=folder) == (40, False)
    assert decodings == []
    decode_images(listing, 16, folder=folder)
    monkeypatch.setattr(cache, "read_header", None)
    assert measure_images(listing, folder=folder) == (40, False)


@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_gray_images_are_known_from_header_or_pixels(
    mode: str, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        path = save_picture(tmp_path / "data" / "ab"[number % 2] / f"{number}.png", seed=number)
        with Image.open(path) as image:
            gray = image.convert("L").convert(mode)
        gray.save(path)
    listing = list_folder(tmp_path / "data")
    assert measure_images(listing, folder=folder)[1] == (mode == "L")
    assert decode_images(listing, 16, 3, folder=folder).is_gray
    assert decode_images(listing, 16, 1, folder=folder).is_gray
    monkeypatch.setattr(cache, "read_header", None)
    assert measure_images(listing, folder=folder)[1]


def test_gray_images_in_color_are_decoded_once_for_both_numbers_of_channels(
    tmp_path: Path, folder: Path, decodings: list[bytes]
) -> None:
    for number in range(4):
        path = save_picture(tmp_path / "data" / "ab"[number % 2] / f"{number}.png", seed=number)
        with Image.open(path) as image:
            gray = image.convert("L").convert("RGB")
        gray.save(path)
    listing = list_folder(tmp_path / "data")
    expected = decode_images(listing, 16, 1, folder=tmp_path / "other")
    decode_images(listing, 16, 3, folder=folder)
    decodings.clear()
    derived = decode_images(listing, 16, 1, folder=folder)
    assert decodings == []
    assert np.array_equal(pixels_of(derived), pixels_of(expected))
    assert np.array_equal(derived.digests, expected.digests)
    assert derived.is_gray


def test_color_seen_in_gray_is_still_color(data: Path, folder: Path) -> None:
    listing = list_folder(data)
    assert decode_images(listing, 16, 1, folder=folder).is_gray
    assert not measure_images(listing, folder=folder)[1]
    assert not decode_images(listing, 16, 3, folder=folder).is_gray
