import pytest

from dualstudent import UserError
from dualstudent.recipes.length import set_length
from tests.support.recipes import small_recipe


def test_another_length_keeps_the_shares_of_the_schedule() -> None:
    recipe = small_recipe(
        "schedule.epochs=10",
        "schedule.rampup_epochs=4",
        "schedule.cosine_epochs=13",
        "schedule.warmup_epochs=2",
        "schedule.warmup_from=0.01",
    )
    schedule = set_length(recipe, 25).schedule.model_dump()
    assert (schedule["epochs"], schedule["rampup_epochs"], schedule["warmup_epochs"]) == (25, 10, 5)
    assert schedule["cosine_epochs"] == 32  # 32.5
    assert set_length(recipe, 10) is recipe
    cyclic = small_recipe("schedule.epochs=10", "schedule.cycle_from=5", "schedule.cycle_length=5")
    with pytest.raises(UserError, match="cycle_from"):
        set_length(cyclic, 4)
