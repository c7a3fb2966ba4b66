"""``python -m tests.bench``; processes that it starts import the other module, not this one."""

from tests.bench.ratios import main

if __name__ == "__main__":
    main()
