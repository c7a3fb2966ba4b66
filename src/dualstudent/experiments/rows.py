"""The rows of a comparison: methods, perhaps with settings of their own, and the ceiling."""

from dataclasses import dataclass
from urllib.parse import quote

from dualstudent.discovery import allow_imports, find_plugin, is_import_path
from dualstudent.errors import UserError
from dualstudent.methods import ENTRY_POINTS, METHODS
from dualstudent.recipes.schema import Recipe
from dualstudent.settings import suggest

CEILING = "all labels"  # the row of a run that knows every label; a reference, not a candidate

_FIELDS = {
    str(method.Settings.model_fields["name"].default): set(method.Settings.model_fields)
    for method in METHODS
}


@dataclass(frozen=True)
class Row:
    """A row of a comparison.

    Attributes:
        name: as the user wrote it and the table shows it.
        method: name of the method.
        changes: ``"key=value"`` settings of the row alone.
    """

    name: str
    method: str
    changes: tuple[str, ...] = ()

    @property
    def file_name(self) -> str:
        """The name in a form that is safe for folders; other rows have other ones.

        Example:
            >>> parse_row("fixmatch:pseudo_label_threshold=0.8").file_name
            'fixmatch,pseudo_label_threshold=0.8'
        """
        return quote(self.name.replace(":", ",").replace(" ", "-"), safe="+=,")

    def has_setting(self, key: str) -> bool:
        """Whether its method has the setting ``method.…`` that the dotted ``key`` names."""
        return key.split(".")[1].strip() in _list_fields(self.method)


def parse_row(text: str) -> Row:
    """Parse ``METHOD`` or ``METHOD:key=value:key=value``, with keys of the section ``method``.

    A method of one's own is named by its import path, ``MODULE:NAME``, and imported.

    Raises:
        UserError: if there is no such method, or a setting is not written as ``key=value``.

    Example:
        >>> parse_row("dual-student:confidence_threshold=0.8").changes
        ('method.name=dual-student', 'method.confidence_threshold=0.8')
    """
    method, *settings = (part.strip() for part in text.split(":"))
    if method not in _FIELDS and settings and is_import_path(f"{method}:{settings[0]}"):
        method = f"{method}:{settings.pop(0)}"
    if not _list_fields(method):
        raise UserError(
            f"there is no method {method!r}{suggest(method, _FIELDS)} "
            "('dualstudent methods' lists them)"
        )
    for setting in settings:
        key, equals, _ = setting.partition("=")
        if not equals or key.strip() == "name":
            raise UserError(
                f"--methods {text}: write settings of a method as METHOD:key=value, for example "
                "fixmatch:pseudo_label_threshold=0.8"
            )
    return Row(text, method, (f"method.name={method}", *(f"method.{each}" for each in settings)))


def _list_fields(method: str) -> set[str]:
    """List the settings of a method, which may be one of others; empty if there is no such one."""
    if method in _FIELDS:
        return _FIELDS[method]
    found = find_plugin(method, ENTRY_POINTS, allow_imports([method]))
    return set(found.Settings.model_fields) if hasattr(found, "Settings") else set()


def make_ceiling(shared: Recipe) -> Row:
    """The row that learns from all labels, by the strongest views that the recipe has.

    Args:
        shared: what all rows share.
    """
    no_features = shared.trunk is not None and not shared.trunk.strong_views
    view = "weak" if shared.transforms.strong.is_empty or no_features else "strong"
    changes = (
        "method.name=supervised",
        f"method.view={view}",
        "data.labels=all",
        "data.foreign=0",
        f"batch.labeled={shared.batch.size}",
    )
    return Row(CEILING, "supervised", changes)
