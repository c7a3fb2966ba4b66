import os
from pathlib import Path

import pytest
from hypothesis import settings

# A busy machine must not fail a test, and a failure must come back on the next run.
settings.register_profile("reproducible", deadline=None, derandomize=True)
settings.load_profile("reproducible")


@pytest.fixture(scope="session")
def data_folder() -> Path:
    folder = os.environ.get("DUALSTUDENT_DATA")
    if not folder:
        pytest.skip("needs the published files: set DUALSTUDENT_DATA to their folder")
    return Path(folder)
