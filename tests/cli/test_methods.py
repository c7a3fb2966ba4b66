from dualstudent.cli.methods import read_summaries
from dualstudent.methods import METHODS
from tests.support.command import Command


def test_the_sources_name_the_registered_methods_in_their_order() -> None:
    registered = [(m.Settings.model_fields["name"].default, m.summary) for m in METHODS]
    assert list(read_summaries().items()) == registered


def test_methods_lists_a_line_each(command: Command) -> None:
    code, shown, _ = command("methods")
    assert code == 0
    assert [line.split()[0] for line in shown.splitlines()] == list(read_summaries())


def test_the_settings_of_a_method_say_what_is_allowed(command: Command) -> None:
    code, shown, _ = command("methods", "dual-student")
    assert code == 0
    assert "'mse' or 'kl'" in " ".join(shown.replace("│", " ").split())
