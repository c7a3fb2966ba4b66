"""Pages in one file each: one frame and one look for all, and all text escaped."""

from functools import cache

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined


@cache
def templates(package: str, folder: str) -> Environment:
    """The templates in ``folder`` of ``package``, which may build on ``base.html`` of all pages."""
    own, shared = PackageLoader(package, folder), PackageLoader("dualstudent.report", "templates")
    return Environment(
        loader=ChoiceLoader([own, shared]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
