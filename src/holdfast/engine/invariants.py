"""How a check of an invariant fails (docs/adr/0020)."""

from holdfast.errors import BrokenInvariant


def must(holds: bool, text: str, *found: object) -> None:
    """Raises BrokenInvariant with what was found, unless the condition holds."""
    if not holds:
        raise BrokenInvariant(f"{text}: found {', '.join(map(str, found))}" if found else text)
