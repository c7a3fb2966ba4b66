import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from dualstudent.data import cache
from dualstudent.data.cache import DecodedImages, decode_once
from dualstudent.data.decoding import decode, resized
from dualstudent.data.files import cache_folder
from dualstudent.data.folders import list_folder
from dualstudent.data.listing import Listing
from dualstudent.errors import UserError
from dualstudent.interruption import Interrupted
from tests.data.picture import save_picture


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
    return decode_once(list_folder(data), size, folder=folder, workers=workers)


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
    for path, pixels, size in zip(images.listing.paths, images.pixels, images.sizes, strict=True):
        whole = decode(path, 3)
        assert np.array_equal(pixels, resized(whole, 16))
        assert size.tolist() == list(whole.shape[1:])


def test_grey_on_request(data: Path, folder: Path) -> None:
    images = decode_once(list_folder(data), 8, channels=1, folder=folder)
    assert images.pixels.shape == (20, 1, 8, 8)
    assert np.array_equal(images.pixels[3], resized(decode(images.listing.paths[3], 1), 8))


def test_torch_uses_the_mapped_file_and_cannot_change_it(data: Path, folder: Path) -> None:
    images = decoded(data, folder)
    assert isinstance(images.pixels, np.memmap)
    tensor = torch.from_numpy(images.pixels)
    assert tensor.data_ptr() == images.pixels.ctypes.data
    before = images.pixels.copy()
    tensor.zero_()
    assert np.array_equal(decoded(data, folder).pixels, before)


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


def test_other_content_size_channels_or_order_are_other_entries(data: Path, folder: Path) -> None:
    listing = list_folder(data)
    decoded(data, folder)
    decode_once(listing, 17, folder=folder)
    decode_once(listing, 16, 1, folder=folder)
    turned = listing.select(range(len(listing) - 1, -1, -1))
    assert np.array_equal(
        decode_once(turned, 16, folder=folder).pixels, decoded(data, folder).pixels[::-1]
    )
    assert len(entries(folder)) == 4
    path = listing.paths[5]
    status = path.stat()
    save_picture(path, seed=99, side=25)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # times can lie
    changed = decoded(data, folder)
    assert np.array_equal(changed.pixels[5], resized(decode(path, 3), 16))
    assert len(entries(folder)) == 5


def test_another_decoder_is_another_entry(
    data: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded(data, folder)
    monkeypatch.setattr(cache, "DECODER", "another")
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
            images.pixels[-1], resized(decode(data / "unlabeled" / "9.png", 3), 16)
        )


def test_a_file_that_became_readable_is_decoded(data: Path, folder: Path) -> None:
    listing = list_folder(data)
    (data / "a" / "2.jpg").unlink()
    images = decode_once(listing, 16, folder=folder)
    assert [file.reason for file in images.unreadable] == ["No such file or directory"]
    save_picture(data / "a" / "2.jpg")
    assert decode_once(listing, 16, folder=folder).unreadable == ()


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
        decode_once(listing, 8, folder=folder)
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


def test_progress(data: Path, folder: Path) -> None:
    recorder = Recorder()
    decode_once(list_folder(data), 16, folder=folder, progress=recorder)
    assert recorder.calls == [(0, 20), (16,), (20,), (0, 20), (16,), (20,)]
    recorder = Recorder()
    decode_once(list_folder(data), 16, folder=folder, progress=recorder)
    assert recorder.calls == [(0, 20), (16,), (20,)]


@pytest.mark.parametrize("damage", ["pixels", "entry.json", "facts.npz"])
def test_a_damaged_entry_is_made_again(data: Path, folder: Path, damage: str) -> None:
    expected = decoded(data, folder).pixels.copy()
    (entry,) = folder.iterdir()
    if damage == "pixels":
        os.truncate(entry / damage, 1000)
    else:
        (entry / damage).unlink()
    assert np.array_equal(decoded(data, folder).pixels, expected)
    assert len(entries(folder)) == 1


def test_an_interruption_leaves_nothing_behind_and_the_next_call_starts_again(
    data: Path, folder: Path
) -> None:
    class Impatient(Recorder):
        def on_step(self, step: int) -> None:
            if self.calls.count((0, 20)) == 2:
                os.kill(os.getpid(), signal.SIGINT)
            super().on_step(step)

    with pytest.raises(Interrupted, match="16 of 20 files; continue with: the same command"):
        decode_once(list_folder(data), 16, folder=folder, progress=Impatient())
    assert entries(folder) == set()
    assert len(decoded(data, folder).pixels) == 20


def test_a_killed_process_leaves_nothing_that_is_used(data: Path, folder: Path) -> None:
    program = f"""
import os, signal
from pathlib import Path
from dualstudent.data.cache import decode_once
from dualstudent.data.folders import list_folder

class Deadly:
    starts = 0
    def on_start(self, step, total):
        self.starts += 1
    def on_step(self, step):
        if self.starts == 2:
            os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    listing = list_folder(Path({str(data)!r}))
    decode_once(listing, 16, folder=Path({str(folder)!r}), progress=Deadly(), workers=2)
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

    images = decode_once(list_folder(data), 16, folder=folder, progress=Second())
    assert len(images.pixels) == 20
    assert len(entries(folder)) == 1


def test_a_file_that_changes_meanwhile_is_noticed(data: Path, folder: Path) -> None:
    class Meddler(Recorder):
        def on_start(self, step: int, total: int) -> None:
            super().on_start(step, total)
            if len(self.calls) > 1:
                save_picture(data / "a" / "2.jpg", seed=7)

    with pytest.raises(UserError, match=r"2\.jpg: changed while it was being read; start again"):
        decode_once(list_folder(data), 16, folder=folder, progress=Meddler())
    assert entries(folder) == set()


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


def test_the_entry_says_what_it_holds(data: Path, folder: Path) -> None:
    decoded(data, folder)
    (entry,) = folder.iterdir()
    assert json.loads((entry / "entry.json").read_text())["shape"] == [20, 3, 16, 16]
