"""``dualstudent report``: finished runs as a page to look at."""

from dualstudent.report.page.writing import write_report

__all__ = ["write_report"]
