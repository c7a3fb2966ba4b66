"""Jinja templates of HTML pages; all text is escaped."""

from functools import cache

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined


@cache
def load_templates(package: str, folder: str) -> Environment:
    """The templates in ``folder`` of ``package``; they may extend the shared ``base.html``."""
    own, shared = PackageLoader(package, folder), PackageLoader("dualstudent.report", "templates")
    return Environment(
        loader=ChoiceLoader([own, shared]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
