"""A follower process of a distributed training: ``python -m dualstudent.follower FOLDER``.

The leader starts it and sends the recipe to its standard input.
"""

import json
import sys
import warnings
from pathlib import Path

from dualstudent.errors import UserError
from dualstudent.recipes.reading import validate
from dualstudent.runs import follow
from dualstudent.signals import Interrupted


def main() -> None:
    warnings.simplefilter("ignore")  # the leader shows them
    recipe = validate(json.loads(sys.stdin.buffer.read()), "of the leader")
    try:
        follow(recipe, Path(sys.argv[1]))
    except (UserError, Interrupted):
        sys.exit(2)  # the leader raises and shows the same error


if __name__ == "__main__":
    main()
