"""How long something took, or will take, in words."""


def describe_time(seconds: float) -> str:
    """For people: ``1 h 05 min``, ``12 min``, ``40 s``."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min"
