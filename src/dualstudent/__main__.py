"""``python -m dualstudent`` is the command ``dualstudent``."""

from dualstudent.cli import main

if __name__ == "__main__":
    main()
