"""A program of a user that trains two runs; torchrun starts it in several processes.

Argument: the folder of the runs.
"""

import sys
from pathlib import Path

from dualstudent import train
from tests.support.elastic import elastic_recipe
from tests.support.together import make_vectors

if __name__ == "__main__":
    for name in ("first", "second"):
        train(elastic_recipe(), Path(sys.argv[1]) / name, data=make_vectors())
