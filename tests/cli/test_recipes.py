import tomllib
from pathlib import Path

from dualstudent import load_recipe
from dualstudent.cli.recipes import read_descriptions
from dualstudent.recipes.files import list_recipe_names
from tests.support.command import Command


def test_the_files_tell_what_the_recipes_are() -> None:
    read = {name: load_recipe(name).description for name in list_recipe_names()}
    assert read_descriptions() == read


def test_recipes_lists_a_line_each(command: Command) -> None:
    for arguments in (["recipes"], ["recipes", "list"]):
        code, shown, _ = command(*arguments)
        assert code == 0
        assert [line.split()[0] for line in shown.splitlines()] == list_recipe_names()


def test_a_recipe_can_be_shown_saved_and_used(command: Command, tmp_path: Path) -> None:
    _, text, _ = command("recipes", "show", "digits")
    mine = tmp_path / "mine.toml"
    mine.write_text(text)
    assert load_recipe(mine) == load_recipe("digits")
    _, full, _ = command("recipes", "show", mine, "--full")
    assert tomllib.loads(full)["method"]["logit_distance_weight"] == 0.01
