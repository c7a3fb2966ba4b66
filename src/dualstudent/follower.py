"""A process that helps another one to train: ``python -m dualstudent.follower FOLDER``.

Started by the leading process, which hands it the recipe. It only names broken images.
"""

import sys
import warnings
from pathlib import Path

from dualstudent.errors import UserError
from dualstudent.recipes.schema import Recipe
from dualstudent.runs import follow
from dualstudent.signals import Interrupted


def main() -> None:
    warnings.simplefilter("ignore")  # the leader says it
    recipe = Recipe.model_validate_json(sys.stdin.buffer.read())
    try:
        follow(recipe, Path(sys.argv[1]))
    except (UserError, Interrupted):
        sys.exit(2)  # the leader meets the same and tells it


if __name__ == "__main__":
    main()
