"""The page itself: evidence → HTML."""

from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256

from markupsafe import Markup

from dualstudent.report.html import templates
from dualstudent.report.page import calibration, chart, coverage, curves, summary
from dualstudent.report.page.classes import class_table
from dualstudent.report.page.confusion import confusion
from dualstudent.report.page.evidence import Evidence
from dualstudent.report.page.numbers import percent
from dualstudent.report.page.settings import settings
from dualstudent.training.run import versions

GENERATOR = "dualstudent report"


def render(runs: Sequence[Evidence]) -> str:
    """One file that needs nothing else: style, script, drawings and pictures are inside.

    Args:
        runs: of :func:`~dualstudent.report.page.evidence.gather`; several are laid side by side.
    """
    environment = templates("dualstudent.report.page", "templates")
    script = Markup(environment.get_template("script.js").render())
    digest = b64encode(sha256(script.encode()).digest()).decode()
    tested = all(run.verdict for run in runs)
    return environment.get_template("page.html").render(
        generator=GENERATOR,
        version=versions()["dualstudent"],
        script=script,
        script_digest=digest,  # the browser runs this script and no other
        runs=runs,
        tested=tested,
        summary=summary,
        curves=curves.learning_curves(runs),
        curve_sentence=curves.sentence,
        trust=[coverage.coverage_chart(runs), calibration.reliability_chart(runs)]
        if tested
        else [],
        coverage=coverage,
        calibration=calibration,
        classes=class_table(runs) if tested else None,
        confusions=[confusion(run) for run in runs] if tested else [],
        settings=settings(runs),
        frame=chart,
        percent=percent,
    )
