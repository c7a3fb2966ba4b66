import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dualstudent.data.images import cache
from dualstudent.data.images import entries as entries_module
from dualstudent.data.images.cache import DecodedImages, decode_images
from dualstudent.data.images.decoding import decode, read_image_file, resize
from dualstudent.data.images.entries import DecodedFile, Entry, FileFacts, Kind, store
from dualstudent.data.images.folders import list_folder
from dualstudent.data.images.listing import Listing
from dualstudent.data.sources.files import cache_folder
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


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for number in range(10):
        save_picture(tmp_path / "data" / "ab"[number % 2] / f"{number}.jpg", side=20 + number)
        save_picture(tmp_path / "data" / "unlabeled" / f"{number}.png", side=40)
    return tmp_path / "data"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def decoded(data: Path, folder: Path, size: int = 16, workers: int = 1) -> DecodedImages:
    return decode_images(list_folder(data), size, folder=folder, workers=workers)


def check_rows(images: DecodedImages) -> None:
    for path, pixels, size in zip(images.listing.paths, images.pixels, images.sizes, strict=True):
        whole = decode(path, 3)
        assert np.array_equal(pixels, resize(whole, 16))
        assert size.tolist() == list(whole.shape[1:])


def entries(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


@pytest.fixture
def no_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("decoded again")

    monkeypatch.setattr(cache, "decode", refuse)


@pytest.mark.parametrize("workers", [1, 2])
def test_every_image_is_where_its_path_is(data: Path, folder: Path, workers: int) -> None:
    images = decoded(data, folder, workers=workers)
    assert images.listing == list_folder(data)
    assert images.pixels.shape == (20, 3, 16, 16)
    check_rows(images)


def test_gray_on_request(data: Path, folder: Path) -> None:
    images = decode_images(list_folder(data), 8, channels=1, folder=folder)
    assert images.pixels.shape == (20, 1, 8, 8)
    assert np.array_equal(images.pixels[3], resize(decode(images.listing.paths[3], 1), 8))


def test_the_mapped_file_cannot_be_changed(data: Path, folder: Path) -> None:
    images = decoded(data, folder)
    assert isinstance(images.pixels, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        images.pixels[0] = 0


@pytest.mark.usefixtures("no_decoding")
def test_nothing_is_decoded_without_need(data: Path, folder: Path) -> None:
    with pytest.raises(AssertionError, match="decoded again"):
        decoded(data, folder)


def test_equal_content_is_not_decoded_again(
    data: Path, folder: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    first = decoded(data, folder)
    request.getfixturevalue("no_decoding")
    shutil.copytree(data, tmp_path / "copy")
    for path in (tmp_path / "copy").rglob("*.jpg"):
        os.utime(path, (1, 1))
        path.rename(path.with_suffix(".jpeg"))  # neither names nor times are content
    again = decoded(tmp_path / "copy", folder)
    assert np.array_equal(again.pixels, first.pixels)
    assert np.array_equal(again.sizes, first.sizes)
    assert np.array_equal(again.digests, first.digests)
    assert again.listing == list_folder(tmp_path / "copy")


def test_other_sizes_channels_and_orders_are_other_entries(data: Path, folder: Path) -> None:
    listing = list_folder(data)
    first = decoded(data, folder)
    assert decode_images(listing, 17, folder=folder).pixels.shape == (20, 3, 17, 17)
    assert decode_images(listing, 16, 1, folder=folder).pixels.shape == (20, 1, 16, 16)
    turned = decode_images(listing.select(range(19, -1, -1)), 16, folder=folder)
    assert np.array_equal(turned.pixels, first.pixels[::-1])
    assert len(entries(folder)) == 3  # the first order can be copied back from the other


def test_other_content_is_noticed_though_size_and_times_are_the_same(
    data: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "_NS_UNTIL_SETTLED", 0)
    path = list_folder(data).paths[5]
    size = path.stat().st_size
    for seed in (98, 99):
        save_picture(path, seed=seed, side=25)
        path.write_bytes(path.read_bytes().ljust(2 * size, b"."))
        os.utime(path, (1, 1))  # times can lie
        assert np.array_equal(decoded(data, folder).pixels[5], resize(decode(path, 3), 16))


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that are read, one after the other."""
    paths: list[Path] = []

    def noting(path: Path) -> bytes:
        paths.append(path)
        return read_image_file(path)

    monkeypatch.setattr(cache, "read_image_file", noting)
    return paths


def test_labeling_an_image_decodes_nothing_and_one_more_image_only_that(
    data: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, read: list[Path]
) -> None:
    monkeypatch.setattr(cache, "_NS_UNTIL_SETTLED", 0)
    decoded(data, folder)
    assert sorted(read) == sorted(list_folder(data).paths)  # each of them once
    read.clear()
    (data / "unlabeled" / "3.png").rename(data / "a" / "3.png")
    with monkeypatch.context() as patch:
        patch.setattr(cache, "decode", None)
        moved = decoded(data, folder)
    check_rows(moved)
    assert read == [data / "a" / "3.png"]  # it has another name
    read.clear()
    new = save_picture(data / "b" / "new.jpg", side=77)
    (data / "unlabeled" / "5.png").unlink()
    changed = decoded(data, folder)
    assert read == [new]
    check_rows(changed)


def test_files_that_did_not_change_are_not_even_read(
    data: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, read: list[Path]
) -> None:
    monkeypatch.setattr(cache, "_NS_UNTIL_SETTLED", 10**18)
    first = decoded(data, folder)
    read.clear()
    decoded(data, folder)
    assert len(read) == 20  # so new that they could change unnoticed
    monkeypatch.setattr(cache, "_NS_UNTIL_SETTLED", 0)
    decoded(data, folder)
    assert len(read) == 40
    again = decoded(data, folder)
    assert len(read) == 40  # the stamps were noted the last time
    assert np.array_equal(again.pixels, first.pixels)


def test_what_others_replaced_is_removed_but_stays_for_those_who_look_at_it(
    data: Path, folder: Path
) -> None:
    images = decoded(data, folder)
    before, old = images.pixels.copy(), entries(folder)
    (data / "unlabeled" / "3.png").rename(data / "a" / "3.png")
    decoded(data, folder)
    assert len(entries(folder)) == 1
    assert not entries(folder) & old
    assert np.array_equal(images.pixels, before)


def test_an_entry_with_other_images_is_kept(data: Path, folder: Path) -> None:
    listing = list_folder(data)
    decode_images(listing.select(range(15)), 16, folder=folder)
    decode_images(listing.select(range(1, 20)), 16, folder=folder)
    assert len(entries(folder)) == 2
    assert len(decode_images(listing, 16, folder=folder).pixels) == 20
    assert len(entries(folder)) == 1


def test_the_entries_used_last_are_kept_and_foreign_folders_too(
    data: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entries_module, "_MOST_ENTRIES", 2)
    (folder / "mine").mkdir(parents=True)
    for hours, size in ((5, 10), (4, 11)):
        decoded(data, folder, size)
        (entry,) = folder.glob(f"images-3x{size}x*")
        os.utime(entry, (time.time() - 3600 * hours,) * 2)
    decoded(data, folder, 10)  # used again
    decoded(data, folder, 12)
    assert {name[:9] for name in entries(folder)} == {"mine", "images-3x"}
    assert {path.name[7:11] for path in folder.glob("images-*")} == {"3x10", "3x12"}


def test_another_decoder_is_another_entry(
    data: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded(data, folder)
    monkeypatch.setattr(entries_module, "DECODER", "another")
    decoded(data, folder)
    assert len(entries(folder)) == 2


@pytest.mark.parametrize("workers", [1, 2])
def test_unreadable_files_are_left_out_and_named(data: Path, folder: Path, workers: int) -> None:
    (data / "a" / "2.jpg").write_text("a text")
    cut = data / "unlabeled" / "7.png"
    cut.write_bytes(cut.read_bytes()[:100])
    whole = list_folder(data)
    for _ in range(2):  # decoded, then found
        images = decoded(data, folder, workers=workers)
        assert [file.path for file in images.unreadable] == [data / "a" / "2.jpg", cut]
        assert "not an image" in images.unreadable[0].reason
        assert len(images.listing) == len(images.pixels) == len(images.digests) == 18
        assert images.listing.paths == tuple(
            path for path in whole.paths if path not in {data / "a" / "2.jpg", cut}
        )
        assert np.array_equal(
            images.pixels[-1], resize(decode(data / "unlabeled" / "9.png", 3), 16)
        )


def test_a_file_that_became_readable_is_decoded(data: Path, folder: Path) -> None:
    listing = list_folder(data)
    (data / "a" / "2.jpg").unlink()
    images = decode_images(listing, 16, folder=folder)
    assert [file.reason for file in images.unreadable] == ["No such file or directory"]
    save_picture(data / "a" / "2.jpg")
    assert decode_images(listing, 16, folder=folder).unreadable == ()


def test_a_class_without_any_readable_image_is_refused(data: Path, folder: Path) -> None:
    for path in (data / "b").iterdir():
        path.write_text("a text")
    with pytest.raises(UserError, match="all labels are 'a'"):
        decoded(data, folder)


def test_nothing_readable_at_all_is_refused(tmp_path: Path, folder: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.png").write_text("a text")
    paths = (tmp_path / "a.png", tmp_path / "b.png")
    listing = Listing("mine", paths, (0, 1), ("train", "train"), ("a", "b"))
    with pytest.raises(UserError, match=r"none of 2 files can be read .*a\.png: not an image"):
        decode_images(listing, 8, folder=folder)
    assert entries(folder) == set()


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


def test_progress(data: Path, folder: Path) -> None:
    recorder = Recorder()
    decode_images(list_folder(data), 16, folder=folder, progress=recorder)
    assert recorder.calls == [(0, 20), (16,), (20,), (0, 20), (16,), (20,)]
    recorder = Recorder()
    decode_images(list_folder(data), 16, folder=folder, progress=recorder)
    assert recorder.calls == [(0, 20), (16,), (20,)]


def flipped(content: bytes) -> bytes:
    middle = len(content) // 3
    return content[:middle] + bytes([content[middle] ^ 255]) + content[middle + 1 :]


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("pixels", lambda content: content[:1000]),
        ("pixels", lambda content: b""),
        ("pixels", None),
        ("facts.npz", lambda content: content[:1000]),
        ("facts.npz", lambda content: b""),
        ("facts.npz", lambda content: b"no archive"),
        ("facts.npz", flipped),
        ("facts.npz", None),
    ],
)
def test_a_damaged_entry_is_made_again(
    data: Path, folder: Path, name: str, damage: Callable[[bytes], bytes] | None
) -> None:
    expected = decoded(data, folder).pixels.copy()
    (entry,) = folder.iterdir()
    content = (entry / name).read_bytes()
    (entry / name).unlink()
    if damage is not None:
        (entry / name).write_bytes(damage(content))
    assert np.array_equal(decoded(data, folder).pixels, expected)
    assert len(entries(folder)) == 1


def test_facts_of_other_files_are_not_taken(data: Path, folder: Path) -> None:
    expected = decoded(data, folder).pixels.copy()
    (entry,) = folder.iterdir()
    with np.load(entry / "facts.npz") as columns:
        shorter = {name: column for name, column in columns.items() if name != "stamps"}
    np.savez(entry / "facts.npz", stamps=np.array([b"1"]), **shorter)
    assert np.array_equal(decoded(data, folder).pixels, expected)


def test_an_interruption_leaves_nothing_behind_and_the_next_call_starts_again(
    data: Path, folder: Path
) -> None:
    class Impatient(Recorder):
        def on_step(self, step: int) -> None:
            if self.calls.count((0, 20)) == 2:
                os.kill(os.getpid(), signal.SIGINT)
            super().on_step(step)

    with pytest.raises(Interrupted, match="16 of 20 files; continue with: the same command"):
        decode_images(list_folder(data), 16, folder=folder, progress=Impatient())
    assert entries(folder) == set()
    assert len(decoded(data, folder).pixels) == 20


def test_a_killed_process_leaves_nothing_that_is_used(data: Path, folder: Path) -> None:
    program = f"""
import os, signal
from pathlib import Path
from dualstudent.data.images.cache import decode_images
from dualstudent.data.images.folders import list_folder

class Deadly:
    starts = 0
    def on_start(self, step, total):
        self.starts += 1
    def on_step(self, step):
        if self.starts == 2:
            os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    listing = list_folder(Path({str(data)!r}))
    decode_images(listing, 16, folder=Path({str(folder)!r}), progress=Deadly(), workers=2)
"""
    script = data.parent / "script.py"
    script.write_text(program)
    # Without an end of the workers, which hold the other end of the pipe, this would not return.
    killed = subprocess.run([sys.executable, script], capture_output=True, check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    (left,) = entries(folder)
    assert left.startswith("partial-")
    assert len(decoded(data, folder).pixels) == 20
    assert left in entries(folder)  # its process might still be at work
    yesterday = time.time() - 25 * 3600
    for path in (folder / left, *(folder / left).rglob("*")):
        os.utime(path, (yesterday, yesterday))
    decoded(data, folder, size=15)
    assert left not in entries(folder)


def test_another_process_may_be_faster(
    data: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Second(Recorder):
        def on_step(self, step: int) -> None:
            super().on_step(step)
            if self.calls.count((0, 20)) == 2 and step == 20:
                decoded(data, folder)

    images = decode_images(list_folder(data), 16, folder=folder, progress=Second())
    assert len(images.pixels) == 20
    assert len(entries(folder)) == 1


def test_a_file_that_changes_meanwhile_is_taken_as_it_was_decoded(data: Path, folder: Path) -> None:
    path = data / "a" / "2.jpg"

    class Meddler(Recorder):
        def on_start(self, step: int, total: int) -> None:
            super().on_start(step, total)
            if len(self.calls) > 1:
                save_picture(path, seed=7)

    index = list_folder(data).paths.index(path)
    images = decode_images(list_folder(data), 16, folder=folder, progress=Meddler())
    assert np.array_equal(images.pixels[index], resize(decode(path, 3), 16))
    assert np.array_equal(decoded(data, folder).pixels, images.pixels)
    assert len(entries(folder)) == 1


def test_an_entry_may_be_larger_than_any_memory(folder: Path) -> None:
    small = DecodedFile(FileFacts("1", 1, ""), np.zeros((1, 1, 1), np.uint8))
    entry = store([small], 1, Kind(1, 1), folder)
    os.truncate(entry.folder / "pixels", 2**40)  # a hole takes no space
    opened = Entry.open(entry.folder, Kind(2**20, 1))
    assert opened is not None
    assert opened.pixels[0, 0, -1, -1] == 0


def test_a_full_disk_is_noticed_before(
    data: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(data)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(
        UserError, match=r"needed and .* free; make space, or set DUALSTUDENT_CACHE"
    ):
        decoded(data, folder)


def test_a_folder_that_cannot_be_made_is_named(data: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot write to .*file.*; set DUALSTUDENT_CACHE"):
        decoded(data, tmp_path / "file" / "cache")


def test_the_setting_beats_the_environment_beats_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DUALSTUDENT_CACHE", raising=False)
    assert cache_folder().name == "decoded"
    monkeypatch.setenv("DUALSTUDENT_CACHE", str(tmp_path / "environment"))
    assert cache_folder() == tmp_path / "environment"
    assert cache_folder(tmp_path / "setting") == tmp_path / "setting"
