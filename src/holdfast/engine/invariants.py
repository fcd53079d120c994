"""What all checks of invariants say where one is broken (docs/adr/0020)."""

from holdfast.errors import BrokenInvariant


def must(holds: bool, text: str, *found: object) -> None:
    """Raises BrokenInvariant with what was found, unless it holds."""
    if not holds:
        raise BrokenInvariant(f"{text}: found {', '.join(map(str, found))}" if found else text)
