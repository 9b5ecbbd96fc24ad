"""Numbers as people read them."""

from __future__ import annotations


def count(number: int) -> str:
    """``1,936,388``."""
    return f"{number:,}"


def plural(number: int, one: str, many: str | None = None) -> str:
    """``1 state``, ``2 states``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def seconds(value: float) -> str:
    """``3 ms``, ``1.52 s``, ``2 min 35 s``, ``3 h 5 min``."""
    if value < 0.9995:
        return f"{value * 1000:.3g} ms" if value else "0 ms"
    if value < 59.995:
        return f"{value:.3g} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes} min"


def duration(seconds: float) -> str:
    """Elapsed time for a progress line: ``0.4 s``, ``38 s``, ``4 min 05 s``, ``2 h 10 min``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    whole = int(seconds)
    return f"{whole // 60} min {whole % 60:02} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60:02} min"


def rate(per_second: float) -> str:
    """``8.02 million a second``, ``4,980 a second``, ``0.17 a second``."""
    if per_second >= 999_500:
        return f"{per_second / 1e6:.3g} million a second"
    if per_second < 9.5:
        return f"{per_second:.2g} a second"
    return f"{per_second:,.0f} a second"


def size(number: int) -> str:
    """``410 MiB``."""
    value = float(number)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if value < 999.5 or unit == "GiB":
            break
        value /= 1024
    return f"{value:,.0f} {unit}" if value >= 9.95 or unit == "bytes" else f"{value:.1f} {unit}"


def probability(value: float) -> str:
    """As TLC prints it: two digits, ``4.2E-8``. Zero is ``0``, and a thousandth or more is a plain decimal."""
    if value == 0:
        return "0"
    if value >= 0.001:
        return f"{value:.2g}"
    digits, exponent = f"{value:.1E}".split("E")
    return f"{digits}E{int(exponent)}"


def percent(part: int, whole: int) -> str:
    """``12%``. ``<1%`` and ``>99%`` never round to ``0%`` and ``100%``."""
    if not whole:
        return ""
    share = 100 * part / whole
    if 0 < share < 1:
        return "<1%"
    if 99 < share < 100:
        return ">99%"
    return f"{share:.0f}%"
