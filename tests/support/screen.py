"""A terminal for tests, of which all that was written is kept."""

import io


class Screen(io.StringIO):
    """`getvalue` is all that was written, control characters included."""

    def isatty(self) -> bool:
        return True
