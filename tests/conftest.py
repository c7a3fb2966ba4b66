import os
from pathlib import Path

import pytest
from hypothesis import settings

from dualstudent import Run, train
from tests.training.small import small_recipe

# A busy machine must not fail a test, and a failure must come back on the next run.
settings.register_profile("reproducible", deadline=None, derandomize=True)
settings.load_profile("reproducible")


@pytest.fixture(scope="session")
def data_folder() -> Path:
    folder = os.environ.get("DUALSTUDENT_DATA")
    if not folder:
        pytest.skip("needs the published files: set DUALSTUDENT_DATA to their folder")
    return Path(folder)


@pytest.fixture(scope="session")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A finished run of Dual Student on real digits, to read from only."""
    return train(small_recipe(), tmp_path_factory.mktemp("runs") / "small")
