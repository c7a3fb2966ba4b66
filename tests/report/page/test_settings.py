from dataclasses import replace

from dualstudent import load_recipe
from dualstudent.recipes.reading import read_recipe_table, validate
from dualstudent.report.page.settings import list_settings
from tests.support.run_data import make_evaluation, make_run_data

NAMES = ("cat", "dog")


def test_every_setting_is_there_and_only_what_differs_is_marked() -> None:
    one = make_run_data("one", make_evaluation(20, NAMES), NAMES, epochs=1)
    changed = load_recipe("digits", ["seed=7", 'data.classes=["1", "2"]', "method.name=supervised"])
    other = replace(one, recipe=changed.model_copy(update={"description": one.recipe.description}))
    rows = {row.key: row for row in list_settings([one, other])}
    assert rows["seed"].values == ["0", "7"]
    assert rows["data.classes"].values == ["–", "1, 2"]
    assert rows["method.name"].values == ["dual-student", "supervised"]
    assert rows["optimizer.momentum"].values == ["0.9", "0.9"]
    assert {key for key, row in rows.items() if row.differs and "method" not in key} == {
        "seed",
        "data.classes",
    }
    assert not any(row.differs for row in list_settings([one]))
    keys = [key.split(".")[0] for key in rows]
    assert keys == sorted(keys, key=keys.index)  # a table's keys stand together


def test_the_settings_of_a_stage_stand_under_its_name() -> None:
    one = make_run_data("one", make_evaluation(20, NAMES), NAMES, epochs=1)
    stages = [
        {"name": "labels", "method": {"name": "supervised", "students": 2}},
        {"name": "both", "schedule": {"epochs": 3}},
    ]
    recipe = validate(read_recipe_table("digits") | {"stages": stages}, "of a test")
    rows = {row.key: row.values for row in list_settings([replace(one, recipe=recipe), one])}
    assert rows["stages.labels.method.students"] == ["2", "–"]
    assert rows["stages.both.schedule.epochs"] == ["3", "–"]
    assert not any("{" in value for values in rows.values() for value in values)
