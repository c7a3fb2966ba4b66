from pathlib import Path

import pytest

from dualstudent import Recipe, Transform, UserError, load_recipe
from dualstudent.errors import NotKeptWarning
from dualstudent.methods import ICT, METHODS, SHOT, Method, MixMatch, SoftPseudoLabels, Supervised
from dualstudent.optimization.optimizers import SGDSettings
from dualstudent.recipes.files import list_recipe_names
from dualstudent.recipes.reading import RenamedKeyWarning, to_toml


@pytest.mark.parametrize("name", list_recipe_names())
def test_every_recipe_of_the_package_is_valid_and_survives_being_written(
    name: str, tmp_path: Path
) -> None:
    recipe = load_recipe(name)
    assert recipe.description
    (tmp_path / "copy.toml").write_text(to_toml(recipe))
    assert load_recipe(tmp_path / "copy.toml") == recipe


def test_the_digits_recipe_is_appendix_d() -> None:
    recipe = load_recipe("usps-mnist")
    assert (recipe.data.source, recipe.data.target, recipe.data.labels) == ("usps", "mnist", "all")
    assert recipe.network.model_dump(include={"name", "pool"}) == {"name": "digits-cnn", "pool": 6}
    assert (recipe.batch.size, recipe.batch.labeled) == (256, 32)
    assert (recipe.schedule.epochs, recipe.schedule.rampup_epochs) == (100, 5)
    assert recipe.optimizer == SGDSettings(learning_rate=0.1, momentum=0.9, weight_decay=1e-4)
    assert (recipe.normalization.mean, recipe.normalization.std) == ((0.5,), (0.5,))
    weak = recipe.transforms.weak
    assert (weak.noise, weak.translate, weak.flip) == (0.15, 0, False)
    assert recipe.method.model_dump() == {
        "name": "dual-student",
        "consistency_weight": 1.0,
        "stabilization_weight": 1.0,
        "confidence_threshold": 0.6,
        "logit_distance_weight": 0.01,
        "distance": "mse",
        "compared_views": "own",
        "classification_average": "batch",
        "label_smoothing": 0.0,
    }


def test_a_recipe_states_only_what_differs(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('extends = "digits"\n[data]\nlabels = 20\n')
    mine, demo = load_recipe(tmp_path / "mine.toml"), load_recipe("digits")
    assert mine.data.labels == 20
    assert mine.data.source == demo.data.source
    assert mine.method == demo.method


def test_another_method_does_not_inherit_settings_of_the_first() -> None:
    source = load_recipe("usps-mnist-source")
    assert source.method.name == "supervised"
    assert source.batch == load_recipe("usps-mnist").batch
    assert load_recipe("digits", ["method.name=supervised"]).method.name == "supervised"


TASK = {"classification_average": "labeled", "confidence_threshold": 0.6}  # of the demo


@pytest.mark.parametrize("kind", METHODS, ids=lambda kind: kind.__name__)
def test_another_method_keeps_what_belongs_to_the_task(kind: type[Method]) -> None:
    """So that a comparison by ``--set method.name=…`` is fair."""
    fields = kind.Settings.model_fields
    changes = [f"method.name={fields['name'].default}", "method.label_smoothing=0.1"]
    if "strong_network" in fields:
        changes.append("method.strong_network.name=digits-cnn")
    method = load_recipe("digits", changes).method.model_dump()
    for key, value in {**TASK, "label_smoothing": 0.1}.items():
        assert method[key] == value if key in fields else key == "classification_average"
    for key, field in fields.items():
        if key not in {"name", "label_smoothing", "strong_network", *TASK}:
            is_demo = method["name"] == "dual-student"
            assert is_demo or method[key] == field.default, key


def test_a_threshold_of_reports_means_the_same_for_every_method() -> None:
    for kind in METHODS:
        assert kind.Settings.model_fields["confidence_threshold"].default == 0.8


def test_only_methods_of_labeled_samples_or_mixtures_have_no_choice_of_the_average() -> None:
    without = {
        kind for kind in METHODS if "classification_average" not in kind.Settings.model_fields
    }
    assert without == {Supervised, ICT, MixMatch, SHOT, SoftPseudoLabels}


def test_what_a_new_method_does_not_keep_is_said_in_one_line() -> None:
    with pytest.warns(NotKeptWarning) as said:
        load_recipe("digits", ["method.name=mean-teacher", "method.consistency_weight=5"])
    (warning,) = said
    assert str(warning.message) == (
        "settings: method.name = 'mean-teacher' has its own defaults and does not keep "
        "stabilization_weight = 100"
    )


@pytest.mark.filterwarnings("error::dualstudent.errors.NotKeptWarning")
@pytest.mark.parametrize(
    "changes",
    [
        [],
        ["method.name=dual-student"],
        ["method.consistency_weight=5"],
        ["network.name=cnn13"],  # the network of the demo has no settings
        ["schedule.name=constant"],
        ["schedule.cycle_from=4", "schedule.cycle_length=2"],
    ],
    ids=str,
)
def test_nothing_is_said_if_nothing_is_lost(changes: list[str]) -> None:
    load_recipe("digits", changes)


@pytest.mark.filterwarnings("error::dualstudent.errors.NotKeptWarning")
@pytest.mark.parametrize("name", list_recipe_names())
def test_nothing_is_said_of_our_own_recipes(name: str) -> None:
    load_recipe(name)


def test_a_recipe_of_a_user_is_told_what_it_does_not_keep(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('extends = "digits"\n[method]\nname = "pi"\n')
    with pytest.warns(NotKeptWarning, match=r"mine\.toml: method\.name = 'pi' .* = 10, .* = 100$"):
        recipe = load_recipe(tmp_path / "mine.toml")
    assert recipe.method.model_dump()["classification_average"] == "labeled"


def find_average(recipe: Recipe) -> object:
    return recipe.method.model_dump()["classification_average"]


@pytest.mark.parametrize(
    ("name", "method", "average"),
    [
        ("few-labels", "mean-teacher", "labeled"),  # of FixMatch
        ("few-labels", "freematch", "labeled"),
        ("svhn-few-labels", "dual-student", "labeled"),
        ("cifar10", "fixmatch", "batch"),  # of Dual Student
        ("cifar10", "pi", "batch"),
        ("mnist", "dual-student", "batch"),  # its own: the recipe's method has no such setting
        ("mnist", "fixmatch", "labeled"),
    ],
)
def test_an_average_that_a_recipe_leaves_to_its_method_holds_for_all(
    name: str, method: str, average: str
) -> None:
    assert find_average(load_recipe(name, [f"method.name={method}"])) == average


def test_an_average_that_a_method_would_not_have_alone_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.warns(NotKeptWarning, match="^settings: ") as said:
        load_recipe("few-labels", ["method.name=mean-teacher"])
    (warning,) = said
    text = str(warning.message)
    assert "method.name = 'mean-teacher'" in text
    assert "classification_average = 'labeled'" in text
    assert "'fixmatch'" in text  # the method of the recipe, whose average it is
    assert "'batch'" in text
    assert "\n" not in text
    (tmp_path / "mine.toml").write_text('extends = "few-labels"\n[method]\nname = "pi"\n')
    with pytest.warns(NotKeptWarning, match=r"mine\.toml: method\.name = 'pi' gets .*'labeled'"):
        assert find_average(load_recipe(tmp_path / "mine.toml")) == "labeled"


@pytest.mark.filterwarnings("error::dualstudent.errors.NotKeptWarning")
@pytest.mark.parametrize("average", ["batch", "labeled"])
def test_an_average_that_the_user_states_is_used_without_a_word(average: str) -> None:
    stated = ["method.name=mean-teacher", f"method.classification_average={average}"]
    assert find_average(load_recipe("few-labels", stated)) == average


def test_settings_of_a_new_method_are_kept_in_any_order() -> None:
    recipe = load_recipe("digits", ["method.decay=0.9", "method.name=mean-teacher"])
    assert recipe.method.model_dump()["decay"] == 0.9
    with pytest.raises(UserError, match=r"method\.nonsense = 3: unknown key"):
        load_recipe("digits", ["method.nonsense=3", "method.name=mean-teacher"])


@pytest.mark.parametrize("key", ["pseudo_label_threshold", "pseudo_label_treshold"])
def test_a_key_of_another_method_is_refused_with_the_methods_that_have_it(key: str) -> None:
    owners = [
        repr(kind.Settings.model_fields["name"].default)
        for kind in METHODS
        if "pseudo_label_threshold" in kind.Settings.model_fields
    ]
    with pytest.raises(UserError) as error:
        load_recipe("digits", [f"method.{key}=0.9"])
    assert "'fixmatch'" in owners
    assert str(error.value).startswith(
        f"recipe digits: method.{key} = 0.9: unknown key; pseudo_label_threshold is a setting of "
        f"method.name = {' or '.join(owners)}; the one chosen has "
    )
    assert " stabilization_weight" in str(error.value)
    with pytest.raises(UserError, match=r"decay is a setting of .* or .* or .* and \d+ more;"):
        load_recipe("digits", ["method.decay=0.9"])


def test_a_part_of_a_key_is_enough_to_suggest_it() -> None:
    with pytest.raises(UserError, match=r"did you mean 'method\.confidence_threshold'\?"):
        load_recipe("digits", ["threshold=0.9"])


def test_a_key_of_another_network_or_optimizer_is_refused_with_those_that_have_it() -> None:
    with pytest.raises(UserError, match=r"network\.widths .*network\.name = .*'whitened-cnn'"):
        load_recipe("digits", ["network.widths=[16, 32, 64]"])
    with pytest.raises(UserError, match=r"optimizer\.betas .*optimizer\.name = 'adamw?'"):
        load_recipe("digits", ["optimizer.betas=[0.9, 0.99]"])


def test_files_are_named_from_where_the_recipe_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "base.toml").write_text('extends = "digits"\nseed = 5\n')
    (tmp_path / "mine.toml").write_text('extends = "base.toml"\n')
    assert load_recipe(tmp_path / "mine.toml").seed == 5
    monkeypatch.chdir(tmp_path)
    assert load_recipe("mine.toml", ["data.folder=data"]).data.folder == tmp_path / "data"


def test_changes_are_toml_values_or_bare_words() -> None:
    recipe = load_recipe(
        "digits",
        ["seed=3", "data.target=digits-8x8", 'data.labels="all"', "transforms.weak.flip=true"],
    )
    assert recipe.seed == 3
    assert recipe.data.target == "digits-8x8"
    assert recipe.data.labels == "all"
    assert recipe.transforms.weak.flip is True


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            "method.confidence_treshold=0.5",
            "unknown key; did you mean 'method.confidence_threshold'",
        ),
        ("transforms.weak.jitter=[0.4]", r"weak\.jitter = \[0\.4\]: give 4 values"),
        ("metod.name=supervised", "metod = .*unknown key; did you mean 'method'"),
        ("method.confidence_threshold=1.0", r"method\.confidence_threshold = 1\.0: .*less than 1"),
        ("method.confidence_threshold=nan", r"method\.confidence_threshold = nan: .*finite"),
        ("method.name=dual", r"method\.name = 'dual': .*\('adamatch', .*'dual-student'"),
        ("data.labels=0", r"data\.labels = 0: .*'10%', or 'all'"),
        ("data.source=minst", r"data\.source = 'minst': .*'mnist'"),
        ("schedule.epochs=two", r"schedule\.epochs = 'two': .*integer"),
        ("seed=-1", "seed = -1: .*greater than or equal to 0"),
        ("network.dropout=1", r"network\.dropout = 1: .*less than 1"),
        ("network.dropuot=0.1", "unknown key; did you mean 'network.dropout'"),
        ("epoch=3", "unknown key; did you mean 'schedule.epochs'"),
        ("name=vat", "unknown key; did you mean 'network.name' or 'method.name'"),
        (
            "optimizer.adam=1",
            "unknown key; optimizer has name, learning_rate, weight_decay, .*momentum$",
        ),
        ("nothing=1", "nothing = 1: unknown key; .*description, seed, data, "),
        ("data=3", "data = 3: .*section"),
        ("network.name=cnn", r"network\.name = 'cnn': .*\('cnn13', .*'shake-shake'"),
        ("network.width=0", r"network\.width = 0: .*greater than 0"),
        ("batch=3", "batch = 3: "),
        ("nonsense", "key=value"),
        ("=3", "key=value"),
    ],
)
def test_a_wrong_setting_is_one_line_that_names_key_value_and_what_is_allowed(
    change: str, message: str
) -> None:
    with pytest.raises(UserError, match=message) as error:
        load_recipe("digits", [change])
    assert "\n" not in str(error.value)


def test_old_names_of_keys_are_read_with_a_warning(tmp_path: Path) -> None:
    recipe = tmp_path / "old.toml"
    recipe.write_text(
        'extends = "digits"\n[augmentation]\nflip = true\nnoise = 0.5\n'
        "[normalisation]\nmean = [0.1]\n[transforms.weak]\nnoise = 0.2\n"
    )
    with pytest.warns(RenamedKeyWarning) as said:
        read = load_recipe(recipe, ["augmentation.rotate=5"])
    assert len(said) == 3
    assert any("transforms.weak" in str(each.message) for each in said)
    weak = read.transforms.weak
    assert (weak.flip, weak.noise, weak.rotate, weak.translate) == (True, 0.2, 5, 2)
    assert read.normalization.mean == (0.1,)
    assert read.transforms.strong == Transform()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seed = ", "not valid TOML"),
        ('extends = "nothing"', "'nothing'"),
        ("extends = 3", "extends = 3"),
        ("seed = 1", "data is missing"),
        ('extends = "digits"\n[method]\nconsistency_weight = 1\nname = 3', r"method\.name = '?3"),
    ],
)
def test_a_broken_recipe_file_is_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        load_recipe(path)


def test_recipes_that_extend_each_other_are_refused(tmp_path: Path) -> None:
    a, b = tmp_path / "a.toml", tmp_path / "b.toml"
    a.write_text(f'extends = "{b}"')
    b.write_text(f'extends = "{a}"')
    with pytest.raises(UserError, match="extends itself"):
        load_recipe(a)


def test_a_misspelt_name_gets_the_nearest_one(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'usps-mnist'"):
        load_recipe("usps-mnst")
    with pytest.raises(UserError, match=r"absent\.toml"):
        load_recipe(tmp_path / "absent.toml")


def test_a_table_of_images_is_not_taken_for_a_recipe() -> None:
    with pytest.raises(UserError, match=r"--data images\.csv$"):
        load_recipe("images.csv")


def test_a_single_change_needs_no_list() -> None:
    assert load_recipe("digits", "seed=3").seed == 3


def test_recipes_cannot_be_changed_by_accident() -> None:
    recipe: Recipe = load_recipe("digits")
    with pytest.raises(ValueError, match="frozen"):
        recipe.seed = 1  # type: ignore[misc]


def test_naming_the_default_optimizer_or_schedule_drops_nothing() -> None:
    plain, named = (
        load_recipe("cifar10", ["schedule.cosine_epochs=400", *more])
        for more in ([], ["optimizer.name=sgd", "schedule.name=cosine"])
    )
    assert named == plain


@pytest.mark.filterwarnings("error::dualstudent.errors.NotKeptWarning")
def test_a_method_that_does_not_exist_is_refused_with_a_suggestion_and_nothing_else() -> None:
    with pytest.raises(UserError, match=r"'fixmach'.*did you mean 'fixmatch'\? \("):
        load_recipe("demo", ["method.name=fixmach"])
