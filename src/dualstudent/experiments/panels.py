"""The two panels of figure "coupling", and what a run must be like to be drawn in one."""

from dualstudent.methods import (
    CSSettings,
    DualStudentSettings,
    MeanTeacherSettings,
    MethodSettings,
)
from dualstudent.recipes.schema import Recipe

DISTANCE = "distance"  # Fig. 2
TWO_CLASSES = "two classes"  # Fig. 3

_METHODS: dict[str, tuple[type[MethodSettings], ...]] = {
    DISTANCE: (MeanTeacherSettings, CSSettings, DualStudentSettings),  # just two networks
    TWO_CLASSES: (MeanTeacherSettings, DualStudentSettings),  # fₛ, and f₁ with f₂
}


def misfit(panel: str, recipe: Recipe) -> str:
    """What keeps runs of this recipe from being drawn in the panel; empty if nothing does.

    Example:
        >>> from dualstudent import load_recipe
        >>> misfit(DISTANCE, load_recipe("demo", ["method.name=vat"]))
        "method.name = 'vat': panel 'distance' shows mean-teacher, cs, dual-student"
    """
    drawn = _METHODS[panel]
    if type(recipe.method) not in drawn:
        names = ", ".join(kind.model_fields["name"].default for kind in drawn)
        return f"method.name = {recipe.method.name!r}: panel {panel!r} shows {names}"
    if panel == DISTANCE:
        return ""
    classes = recipe.data.classes
    if recipe.data.source is None:
        return f"data.path: panel {panel!r} is for classes of a published data set"
    if classes is None or len(classes) != 2:
        return f"data.classes: panel {panel!r} needs two; name them, as in ['cat', 'dog']"
    if not recipe.evaluation.track:
        return (
            f"evaluation.track = 0: panel {panel!r} follows single test samples; say how many, "
            "for example 500"
        )
    return ""
