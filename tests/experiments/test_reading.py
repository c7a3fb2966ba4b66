from pathlib import Path

import pytest

from dualstudent import UserError, load_recipe
from dualstudent.experiments.plan import plan
from dualstudent.experiments.reading import list_experiments, load_experiment
from dualstudent.experiments.schema import Cell, PaperValue
from tests.support.experiments import SMALL


def test_the_experiments_are_those_of_the_paper() -> None:
    tables = [f"table{number}" for number in range(1, 7)]
    figures = ["ablation", "coupling", "domain-adaptation", "stable-samples"]
    assert list_experiments() == [*tables, *figures]


@pytest.mark.parametrize("text", ["12.34", "12.34 ± 0.56", "12.34 ± 0.56 †"])
def test_paper_values_read_as_they_are_written(text: str) -> None:
    assert str(PaperValue.parse(text)) == text


def test_a_file_of_the_user_is_an_experiment(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(SMALL)
    experiment = load_experiment(path)
    assert experiment.name == "mine"
    assert experiment.cells("full") == [
        Cell("supervised", "few"),
        Cell("supervised", "more"),
        Cell("both", "few"),
    ]
    assert experiment.cells("cpu") == [Cell("supervised", "more"), Cell("both", "more")]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('place = "Table 0"', "", ": place"),
        ('"12.50 ± 0.50"', '"about 12"', r"rows\.supervised\.paper = "),
        (
            '["12.50 ± 0.50", "7.25"]',
            '["7.25"]',
            ": row 'supervised': paper",
        ),
        ('name = "both"', 'name = "supervised"', "two rows"),
        ("both = ", "neither = ", r"cpu\.rows: .*'neither'"),
        ('figure = "bars"', 'figure = "ablation"', "figure 'ablation'"),
        (
            "[cpu.settings]",
            '[[cpu.columns]]\nname = "more"\n\n[cpu.settings]',
            "two columns of cpu",
        ),
        ("seeds = 2", "seed = 2", "seed = 2: .*'seeds'"),
        ("seeds = 2", "seeds = ", "not valid TOML"),
        (
            'name = "both"',
            'name = "both"\npannel = "a"',
            r"rows\.both\.pannel = 'a': .*'rows\.both\.panel'",
        ),
    ],
)
def test_a_broken_experiment_is_one_line(old: str, new: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    assert old in SMALL
    path.write_text(SMALL.replace(old, new, 1))
    with pytest.raises(UserError, match=message) as error:
        load_experiment(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("rows", ['rows = ["DS", "MT"]\n', '[rows]\nname = "DS"\n'])
def test_rows_that_are_no_list_of_sections(rows: str, tmp_path: Path) -> None:
    path = tmp_path / "cpu.toml"
    path.write_text(rows)
    with pytest.raises(UserError) as error:
        load_experiment(path)
    assert "[[rows]]" in str(error.value)
    assert "; cpu is missing" in str(error.value)  # although the file is called like that


def test_a_recipe_is_not_taken_for_an_experiment_nor_the_other_way(tmp_path: Path) -> None:
    experiment, recipe = tmp_path / "experiment.toml", tmp_path / "recipe.toml"
    experiment.write_text(SMALL)
    recipe.write_text('extends = "digits"\n')
    with pytest.raises(UserError, match=f"dualstudent train {recipe}"):
        load_experiment(recipe)
    with pytest.raises(UserError, match=f"dualstudent reproduce {experiment}"):
        load_recipe(experiment)


def test_a_recipe_is_looked_for_beside_the_experiment_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(SMALL.replace('recipe = "digits"', 'recipe = "base.toml"'))
    (tmp_path / "base.toml").write_text('extends = "digits"\nschedule.epochs = 7\n')
    recipes = plan(load_experiment(tmp_path / "mine.toml"), "full").recipes.values()
    assert {recipe.schedule.epochs for recipe in recipes} == {7}


def test_an_unknown_experiment_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"'table7'.*\(table1, table2"):
        load_experiment("table7")
    with pytest.raises(UserError, match=r"absent\.toml"):
        load_experiment(tmp_path / "absent.toml")
