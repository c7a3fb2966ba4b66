"""Numbers and durations as text."""

from datetime import timedelta


def format_percent(value: float) -> str:
    """A percentage with two decimals.

    Example:
        >>> format_percent(12.5)
        '12.50 %'
    """
    return f"{value:.2f} %"


def html_percent(value: float) -> str:
    r"""The same with a space that does not break, for HTML pages.

    Example:
        >>> html_percent(12.5)
        '12.50\xa0%'
    """
    return f"{value:.2f}\u00a0%"


def format_interval(interval: tuple[float, float]) -> str:
    """The ends of an interval with one decimal.

    Example:
        >>> format_interval((12.34, 56.0))
        '12.3 to 56.0'
    """
    low, high = interval
    return f"{low:.1f} to {high:.1f}"


def format_count(number: int, noun: str) -> str:
    """A number with its noun in the singular or plural.

    Example:
        >>> format_count(1, "run"), format_count(2000, "image")
        ('1 run', '2,000 images')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def format_bytes(count: int) -> str:
    """A number of bytes in MB or GB.

    Example:
        >>> format_bytes(19_100_000), format_bytes(2_500_000_000)
        ('19.1 MB', '2.5 GB')
    """
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def format_duration(seconds: float) -> str:
    """Hours, minutes and seconds.

    Example:
        >>> format_duration(75.4)
        '0:01:15'
    """
    return str(timedelta(seconds=round(seconds)))


def format_estimate(seconds: float) -> str:
    """A duration, rounded, in seconds, minutes, hours or days.

    Example:
        >>> format_estimate(7), format_estimate(70), format_estimate(9000), format_estimate(4e6)
        ('7 s', '1 min', '2.5 h', '46 days')
    """
    if seconds < 60:
        return f"{max(seconds, 1):.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.0f} days"
