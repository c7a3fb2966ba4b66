"""The HTML page about finished runs; one file per section."""

from dualstudent.report.page.page import write_report

__all__ = ["write_report"]
