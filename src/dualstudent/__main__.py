"""``python -m dualstudent`` is the command ``dualstudent``."""

import sys


def main() -> None:
    """Run the command; Ctrl-C while its packages load ends it without their traceback."""
    try:
        from dualstudent import cli  # noqa: PLC0415

        cli.main()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
