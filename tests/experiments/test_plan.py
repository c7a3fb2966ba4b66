"""Every cell of every experiment is a recipe, with the settings that the paper states."""

import dataclasses
import warnings
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import get_args

import pytest

from dualstudent import Recipe, UserError, load_recipe
from dualstudent.data.prepare import DataSettings
from dualstudent.errors import NotKeptWarning
from dualstudent.experiments.cost import count_steps
from dualstudent.experiments.plan import Plan, plan, run_name
from dualstudent.experiments.reading import list_experiments, load_experiment
from dualstudent.experiments.schema import BudgetName, Cell
from dualstudent.optimization.optimizers import SGDSettings
from dualstudent.optimization.schedules import CyclicSchedule

ALL = [(name, budget) for name in list_experiments() for budget in get_args(BudgetName)]


def planned(name: str, budget: BudgetName = "full", seeds: int | None = None) -> Plan:
    return plan(load_experiment(name), budget, seeds)


def recipe_of(name: str, row: str, column: str) -> Recipe:
    return planned(name).recipes[Cell(row, column)]


@pytest.mark.parametrize(("name", "budget"), ALL)
def test_every_cell_is_a_valid_recipe(name: str, budget: BudgetName) -> None:
    found = planned(name, budget)
    assert set(found.recipes) == set(found.experiment.cells(budget))
    for cell, recipe in found.recipes.items():
        assert recipe.description == f"{name}: {cell}"
        assert count_steps(recipe) > 0


@dataclass(frozen=True)
class Stated:
    """Appendices C and D, and the length of an epoch."""

    epochs: int
    batch: tuple[int, int]
    steps: int
    learning_rate: float
    weight_decay: float
    weights: tuple[float, float]
    threshold: float


CIFAR10 = Stated(300, (100, 50), 980, 0.1, 1e-4, (10, 100), 0.8)
CIFAR100 = Stated(300, (128, 31), 412, 0.2, 2e-4, (10, 100), 0.4)
SVHN = Stated(300, (100, 10), 811, 0.1, 1e-4, (10, 10), 0.8)
ALL10 = dataclasses.replace(CIFAR10, batch=(100, 100), steps=500)
ALL100 = dataclasses.replace(CIFAR100, batch=(128, 128), steps=390)
STATED = {
    ("table1", "DS", "1k labels"): CIFAR10,
    ("table1", "DS", "2k labels"): dataclasses.replace(CIFAR10, steps=960),
    ("table1", "DS", "4k labels"): dataclasses.replace(CIFAR10, steps=920),
    ("table1", "DS", "all labels"): ALL10,
    ("table1", "DS (600)", "4k labels"): dataclasses.replace(CIFAR10, steps=920, epochs=600),
    ("table1", "DS (600)", "all labels"): dataclasses.replace(ALL10, epochs=600),
    ("table2", "DS", "10k labels"): CIFAR100,
    ("table2", "DS", "all labels"): ALL100,
    ("table2", "DS (480)", "10k labels"): dataclasses.replace(CIFAR100, epochs=480),
    ("table3", "DS", "250 labels"): SVHN,
    ("table3", "DS", "500 labels"): dataclasses.replace(SVHN, steps=808),
    ("table4", "DS", "10% labels, top-1"): Stated(
        60, (320, 160), 7207, 0.2, 5e-5, (10, 1000), 0.01
    ),
    ("table5", "MS (4 models)", "CIFAR-10, 1k labels"): CIFAR10,
    ("table5", "MS (8 models)", "CIFAR-100, 10k labels"): CIFAR100,
    ("table5", "IS (3.53M params)", "CIFAR-10, 1k labels"): CIFAR10,
    ("table5", "IS (11.6M params)", "CIFAR-100, 10k labels"): CIFAR100,
    ("table6", "CIFAR-10, 1k labels", "ξ = 0.0"): dataclasses.replace(CIFAR10, threshold=0.0),
    ("table6", "CIFAR-100, 10k labels", "ξ = 0.6"): dataclasses.replace(CIFAR100, threshold=0.6),
    ("ablation", "DS + MT", "1k labels"): CIFAR10,
    ("domain-adaptation", "Dual Student", "MNIST"): Stated(
        100, (256, 32), 267, 0.1, 1e-4, (1, 1), 0.6
    ),
}


@pytest.mark.parametrize("where", STATED, ids=", ".join)
def test_dual_student_has_the_settings_of_the_paper(where: tuple[str, str, str]) -> None:
    recipe, stated = recipe_of(*where), STATED[where]
    method = recipe.method.model_dump()
    found = Stated(
        recipe.schedule.epochs,
        (recipe.batch.size, recipe.batch.labeled),
        count_steps(recipe) // recipe.schedule.epochs,
        recipe.optimizer.learning_rate,
        recipe.optimizer.weight_decay,
        (method["consistency_weight"], method["stabilization_weight"]),
        method["confidence_threshold"],
    )
    assert found == stated
    assert method["logit_distance_weight"] == 0.01
    assert (method["distance"], method["classification_average"]) == ("mse", "batch")
    assert recipe.optimizer == SGDSettings(
        learning_rate=recipe.optimizer.learning_rate, weight_decay=recipe.optimizer.weight_decay
    )
    assert recipe.schedule.rampup_epochs == 5


@pytest.mark.parametrize(
    ("where", "settings"),
    [
        (("table1", "MT", "2k labels"), {"name": "mean-teacher", "decay": 0.97}),
        (("table2", "MT", "10k labels"), {"name": "mean-teacher", "decay": 0.97}),
        (("table3", "MT", "250 labels"), {"name": "mean-teacher", "decay": 0.999}),
        (
            ("table4", "MT", "10% labels, top-5"),
            {"name": "mean-teacher", "decay": 0.9997, "consistency_weight": 10, "distance": "kl"},
        ),
        (
            ("domain-adaptation", "Mean Teacher", "MNIST"),
            {"name": "mean-teacher", "decay": 0.99, "consistency_weight": 3},
        ),
        (("table1", "MT", "1k labels"), {"consistency_weight": 100, "distance": "mse"}),
        (("table1", "Temp", "1k labels"), {"name": "temporal", "decay": 0.6}),
        # 30 · labels/N, with both losses averaged over a batch of which labels/N are labeled.
        *(
            (
                ("table1", row, column),
                {"consistency_weight": 30, "classification_average": "labeled"},
            )
            for row in ("Temp", "Temp + SN")
            for column in ("1k labels", "all labels")
        ),
        (
            ("table2", "Temp", "10k labels"),
            {"consistency_weight": 100, "classification_average": "labeled"},
        ),
        (("table1", "Π", "1k labels"), {"name": "pi", "gradient_through": "one"}),
        (
            ("table1", "Π + SN", "1k labels"),
            {"name": "pi+sn", "neighbor_weight": 0.4, "margin": 1, "neighbor_distance": "mean"},
        ),
        (("table1", "Temp + SN", "1k labels"), {"name": "temporal+sn", "neighbor_weight": 0.4}),
        (
            ("table1", "Deep CT (600)", "4k labels"),
            {"name": "deep-co-training", "cotraining_weight": 10, "difference_weight": 0.5},
        ),
        *(
            ((table, "Deep CT (600)", column), {"classification_average": "labeled"})
            for table, column in (("table1", "4k labels"), ("table2", "10k labels"))
        ),
        (
            ("table1", "CS", "all labels"),
            {"name": "cs", "consistency_weight": 10, "mutual_consistency_weight": 100},
        ),
        (("ablation", "ℒ_cs", "1k labels"), {"name": "cs", "consistency_weight": 0}),
        (
            ("ablation", "ℒ_con", "1k labels"),
            {"name": "dual-student", "consistency_weight": 10, "stabilization_weight": 0},
        ),
        (
            ("ablation", "ℒ_sta", "1k labels"),
            {"name": "dual-student", "consistency_weight": 0, "stabilization_weight": 100},
        ),
        (("table5", "MS (8 models)", "CIFAR-10, 1k labels"), {"students": 8}),
        (
            ("table5", "IS (3.53M params)", "CIFAR-10, 1k labels"),
            {"strong_network": {"name": "shake-shake", "batch_norm": "together", "width": 35}},
        ),
        (
            ("table5", "IS (11.6M params)", "CIFAR-10, 1k labels"),
            {"strong_network": {"name": "shake-shake", "batch_norm": "together", "width": 64}},
        ),
    ],
    ids=str,
)
def test_other_methods_have_their_own_settings(
    where: tuple[str, str, str], settings: dict[str, object]
) -> None:
    method = recipe_of(*where).method.model_dump()
    assert {key: method[key] for key in settings} == settings


@pytest.mark.parametrize(
    ("where", "epochs"),
    [
        (("table1", "MT + FSWA", "1k labels"), 300),
        (("table2", "Π + FSWA", "all labels"), 300),
        (("table2", "MT + FSWA (1200)", "10k labels"), 1200),
    ],
    ids=str,
)
def test_fastswa_replays_epochs_150_to_180_of_210(where: tuple[str, str, str], epochs: int) -> None:
    recipe = recipe_of(*where)
    schedule, method = recipe.schedule, recipe.method.model_dump()
    assert schedule.epochs == epochs
    assert isinstance(schedule, CyclicSchedule)
    assert (schedule.cosine_epochs, schedule.cycle_from, schedule.cycle_length) == (210, 150, 30)
    assert (method["average_from"], method["average_every"]) == (150, 3)


@pytest.mark.parametrize(
    ("where", "rate"),
    [
        (("table1", "MT + FSWA", "1k labels"), 0.1),
        (("table2", "Π + FSWA", "10k labels"), 0.1),
        (("table2", "MT + FSWA", "all labels"), 0.1),
        (("table2", "MT + FSWA (1200)", "10k labels"), 0.1),
        (("table2", "MT", "10k labels"), 0.2),
    ],
    ids=str,
)
def test_fastswa_has_its_own_learning_rate(where: tuple[str, str, str], rate: float) -> None:
    assert recipe_of(*where).optimizer.learning_rate == rate


@pytest.mark.parametrize(
    "where",
    [
        ("table1", "Temp", "1k labels"),
        ("table1", "Temp + SN", "4k labels"),
        ("table1", "Deep CT (600)", "4k labels"),
        ("table2", "Temp", "all labels"),
    ],
    ids=str,
)
def test_methods_whose_authors_ramp_up_over_80_epochs(where: tuple[str, str, str]) -> None:
    assert recipe_of(*where).schedule.rampup_epochs == 80


def test_settings_of_the_task_are_those_of_every_row() -> None:
    rows: list[tuple[str, BudgetName, float | None, str]] = [
        ("table2", "full", 0.4, "batch"),
        ("table1", "cpu", 0.8, "labeled"),
        ("table2", "cpu", None, "labeled"),  # Dual Student has a threshold of its own there
        ("table5", "cpu", 0.8, "labeled"),
    ]
    for name, budget, threshold, average in rows:
        for cell, recipe in planned(name, budget).recipes.items():
            settings = recipe.method.model_dump()
            if threshold is not None:
                assert settings["confidence_threshold"] == threshold, cell
            if cell.row not in ("Supervised", "Temp", "Deep CT (600)"):  # these have no other one
                assert settings["classification_average"] == average, cell


def test_all_adaptation_runs_take_as_many_steps() -> None:
    recipes = planned("domain-adaptation").recipes
    assert {count_steps(recipe) for recipe in recipes.values()} == {26_700}
    target = recipes[Cell("Target-supervised", "MNIST")].data
    assert (target.source, target.target, target.labels) == ("mnist", None, 7000)


def test_students_of_the_correction_figure_share_their_beginning() -> None:
    recipes = planned("coupling").recipes
    teacher, dual = (
        recipes[Cell(f"{name}, two classes", "CIFAR-10")]
        for name in ("Mean Teacher", "Dual Student")
    )
    assert teacher.data == dual.data  # the same labels for the same seed
    assert teacher.network == dual.network
    assert dual.data.classes == ("cat", "dog")
    assert teacher.evaluation.track == dual.evaluation.track > 0


def test_equal_cells_of_two_experiments_are_the_same_run() -> None:
    shared = [
        ("table1", "DS", "1k labels"),
        ("table5", "DS", "CIFAR-10, 1k labels"),
        ("table6", "CIFAR-10, 1k labels", "ξ = 0.8"),
        ("ablation", "DS", "1k labels"),
        ("ablation", "ℒ_con + ℒ_sta", "1k labels"),
        ("stable-samples", "DS", "1k labels"),
    ]
    assert len({run_name(recipe_of(*where)) for where in shared}) == 1
    assert run_name(recipe_of("coupling", "S_ema", "CIFAR-10")) == run_name(
        recipe_of("table1", "MT", "1k labels")
    )
    assert run_name(recipe_of("table4", "MT", "10% labels, top-1")) == run_name(
        recipe_of("table4", "MT", "10% labels, top-5")
    )


@pytest.mark.parametrize("budget", get_args(BudgetName))
def test_a_name_stands_for_one_run_only(budget: BudgetName) -> None:
    of_name: dict[str, Recipe] = {}
    for name in list_experiments():
        found = planned(name, budget)
        for run, recipe in found.runs().items():
            assert of_name.setdefault(run, recipe).defines_same_run_as(recipe), run
    recipes = list(of_name.values())
    for number, recipe in enumerate(recipes):
        assert not any(recipe.defines_same_run_as(other) for other in recipes[number + 1 :])


def test_names_can_be_read() -> None:
    recipe = recipe_of("table1", "DS", "1k labels")
    assert run_name(recipe).startswith("dual-student-cifar10-1000-")
    assert run_name(recipe).endswith("-seed0")
    adaptation = recipe_of("domain-adaptation", "Source only", "MNIST")
    assert run_name(adaptation).startswith("supervised-usps-mnist-all-")


def test_runs_come_seed_by_seed() -> None:
    found = planned("table3", seeds=2)
    seeds = [recipe.seed for recipe in found.runs().values()]
    assert seeds == [0] * 6 + [1] * 6


def test_cells_are_chosen_by_a_part_of_their_name() -> None:
    table3 = load_experiment("table3")
    found = plan(table3, "full", only="mt, 5")
    assert found.wanted == [Cell("MT", "500 labels")]
    assert len(found.recipes) == len(plan(table3, "full").wanted) == 6
    with pytest.raises(UserError, match=r"'XYZ'.* 250 labels; 500"):
        plan(table3, "full", only="XYZ")


def test_what_only_one_method_knows_can_be_set_in_its_runs() -> None:
    adaptation, change = load_experiment("domain-adaptation"), ["method.stabilization_weight=10"]
    message = r"Source only, MNIST: method\.stabilization_weight = 10.* --only"
    with pytest.raises(UserError, match=message):
        plan(adaptation, "full", changes=change)
    found = plan(adaptation, "full", changes=change, only="dual")
    assert list(found.recipes) == found.wanted == [Cell("Dual Student", "MNIST")]
    (recipe,) = found.recipes.values()
    assert recipe.method.model_dump()["stabilization_weight"] == 10
    assert found.differences[1].startswith(
        "Left out, as they do not allow that: Source only, MNIST;"
    )
    with pytest.raises(UserError, match=r"epochs = 0: input should be greater than 0$"):
        plan(adaptation, "full", changes=["schedule.epochs=0"])  # no cell allows it


def test_a_changed_experiment_has_a_name_of_its_own() -> None:
    def name(*changes: str) -> str:
        return plan(load_experiment("table3"), "full", changes=changes).name

    assert name() == "table3"
    assert name("schedule.epochs=9").startswith("table3-")
    assert name("schedule.epochs=9") == name("schedule.epochs = 9")
    assert name("schedule.epochs=9") != name("schedule.epochs=8")
    assert name("schedule.epochs=9", "schedule.epochs=8") == name("schedule.epochs=8")


def test_own_images_in_experiments_are_called_after_their_folders(tmp_path: Path) -> None:
    recipe = load_recipe("digits").model_copy(
        update={"data": DataSettings(path=tmp_path / "photos", target_path=tmp_path / "sketches")}
    )
    assert run_name(recipe).startswith("dual-student-photos-sketches-all-")


@pytest.mark.parametrize(
    ("left_out", "message"),
    [
        ("settings.evaluation.track = 500\n", "evaluation.track = 0"),
        ('classes = ["cat", "dog"], ', "data.classes"),
        ('panel = "distance"\n', "'distance' and 'two classes'"),
        ('panel = "two classes"\n', "'distance' and 'two classes'"),
    ],
)
def test_runs_that_figure_2_or_3_could_not_show_are_refused_before(
    left_out: str, message: str, tmp_path: Path
) -> None:
    text = files("dualstudent.experiments").joinpath("coupling.toml").read_text("utf-8")
    assert left_out in text
    (tmp_path / "own.toml").write_text(text.replace(left_out, ""))
    with pytest.raises(UserError, match=f"own.*{message}"):
        plan(load_experiment(str(tmp_path / "own.toml")), "full")


def test_rows_that_figure_3_compares_must_follow_the_same_samples(tmp_path: Path) -> None:
    text = files("dualstudent.experiments").joinpath("coupling.toml").read_text("utf-8")
    (tmp_path / "own.toml").write_text(text.replace("track = 500", "track = 100", 1))
    with pytest.raises(UserError, match=r"data\.classes and evaluation\.track"):
        plan(load_experiment(str(tmp_path / "own.toml")), "full")


def test_a_mistake_in_a_row_that_is_not_wanted_is_no_reason_to_leave_it_out(tmp_path: Path) -> None:
    text = files("dualstudent.experiments").joinpath("table3.toml").read_text("utf-8")
    name = 'name = "Supervised"\n'
    assert name in text
    (tmp_path / "own.toml").write_text(text.replace(name, f"{name}settings.batch.sise = 3\n"))
    own = load_experiment(str(tmp_path / "own.toml"))
    for changes in ([], ["schedule.epochs=1"]):
        with pytest.raises(UserError, match=r"Supervised, 250 labels: batch\.sise = 3"):
            plan(own, "full", changes=changes, only="DS")


def test_what_another_method_does_not_keep_is_said_of_own_experiments(tmp_path: Path) -> None:
    text = files("dualstudent.experiments").joinpath("table3.toml").read_text("utf-8")
    (tmp_path / "own.toml").write_text(text)
    says = "^experiment own: method.name = 'mean-teacher' .* does not keep .*stabilization_weight"
    with pytest.warns(NotKeptWarning, match=says):
        plan(load_experiment(str(tmp_path / "own.toml")), "full")
    for name, budget in ALL:  # ours are meant as they are
        with warnings.catch_warnings():
            warnings.simplefilter("error", NotKeptWarning)
            planned(name, budget)


@pytest.mark.parametrize(
    ("row", "method", "shows"),
    [
        ("S_split", "supervised", "mean-teacher, cs, dual-student"),
        ("two classes", "cs", "mean-teacher, dual-student"),
    ],
)
def test_methods_that_figure_2_or_3_could_not_show_are_refused_before(
    row: str, method: str, shows: str
) -> None:
    changes = [f"method.name={method}"]
    with pytest.raises(UserError, match=f"method.name = '{method}'.* {shows}"):
        plan(load_experiment("coupling"), "full", changes=changes, only=row)
