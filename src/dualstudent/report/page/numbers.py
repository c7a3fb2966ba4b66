"""How figures read on a page."""


def percent(value: float) -> str:
    r"""With two decimals, and never broken before its sign.

    Example:
        >>> percent(12.5)
        '12.50\xa0%'
    """
    return f"{value:.2f}\u00a0%"
