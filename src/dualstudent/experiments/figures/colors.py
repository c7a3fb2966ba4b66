"""One color per method, the same in every picture of the paper's tables."""

from dualstudent.methods import DualStudentSettings, SupervisedSettings
from dualstudent.recipes.schema import Recipe

# The palette of Okabe and Ito, which is safe for color-blind readers, and shades of gray.
INK, GRAY, _LIGHT_GRAY = "#222222", "#666666", "#A6A6A6"
_ORANGE, _SKY, _GREEN, _BLUE = "#E69F00", "#56B4E9", "#009E73", "#0072B2"
_VERMILION, _PURPLE = "#D55E00", "#CC79A7"
_BROWN = "#7A5C00"

_METHOD_COLORS = {
    "pi": _SKY,
    "temporal": _PURPLE,
    "mean-teacher": _ORANGE,
    "vat": _BROWN,
    "deep-co-training": _GREEN,
    "cs": _VERMILION,
    "dual-student": _BLUE,
    "multiple-student": _BLUE,
    "imbalanced-student": _BLUE,
    "dual-student+mean-teacher": _GREEN,
    "dnll": _BLUE,
    "fixmatch": _VERMILION,
    "flexmatch": _PURPLE,
    "freematch": _GREEN,
    "softmatch": _SKY,
    "adamatch": _BROWN,
    "mixmatch": _PURPLE,
    "ict": _ORANGE,
    "soft-pseudo-labels": _SKY,
}
STABLE, ALL = _BLUE, _LIGHT_GRAY
_PALETTE = (_BLUE, _ORANGE, _GREEN, _VERMILION, _PURPLE, _SKY, _BROWN, GRAY)
_DASHES = ("-", "--", ":")


def choose_color(recipe: Recipe) -> str:
    """The color of a recipe's method; additions such as FastSWA keep the color of their base."""
    method = recipe.method
    if isinstance(method, SupervisedSettings):
        return _LIGHT_GRAY if recipe.data.target else GRAY  # source only, or on the domain itself
    if isinstance(method, DualStudentSettings):
        return _choose_by_constraints(method)
    return _METHOD_COLORS.get(method.name) or _METHOD_COLORS[method.name.split("+")[0]]


def choose_line(number: int) -> tuple[str, str]:
    """Color and dashes of line ``number`` of a figure; the first 24 differ.

    Example:
        >>> choose_line(0), choose_line(8)
        (('#0072B2', '-'), ('#0072B2', '--'))
    """
    again, color = divmod(number, len(_PALETTE))
    return _PALETTE[color], _DASHES[again % len(_DASHES)]


def _choose_by_constraints(method: DualStudentSettings) -> str:
    """Dual Student without one of its constraints has another color, for ablations."""
    match bool(method.consistency_weight), bool(method.stabilization_weight):
        case True, True:
            return _METHOD_COLORS["dual-student"]
        case True, False:
            return _METHOD_COLORS["pi"]  # each student consistent with itself alone
        case False, True:
            return _PURPLE
        case _:
            return INK
