from pathlib import Path

import pooch
import pytest

from dualstudent.data.paths import find_cache_folder, find_data_folder


def test_for_data_the_setting_beats_the_environment_beats_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DUALSTUDENT_DATA", raising=False)
    assert find_data_folder() == Path(pooch.os_cache("dualstudent"))

    monkeypatch.setenv("DUALSTUDENT_DATA", "")
    assert find_data_folder() == Path(pooch.os_cache("dualstudent"))

    monkeypatch.setenv("DUALSTUDENT_DATA", str(tmp_path / "environment"))
    assert find_data_folder() == tmp_path / "environment"
    assert find_data_folder(tmp_path / "setting") == tmp_path / "setting"


def test_a_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DUALSTUDENT_DATA", "~/environment")

    assert find_data_folder() == tmp_path / "environment"
    assert find_data_folder(Path("~/setting")) == tmp_path / "setting"


def test_for_decoded_images_the_setting_beats_the_environment_beats_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DUALSTUDENT_CACHE", raising=False)
    assert find_cache_folder().name == "decoded"
    monkeypatch.setenv("DUALSTUDENT_CACHE", str(tmp_path / "environment"))
    assert find_cache_folder() == tmp_path / "environment"
    assert find_cache_folder(tmp_path / "setting") == tmp_path / "setting"
