"""The error of an invalid selector, with its position."""

from holdfast.lines import one_line


class SelectorError(ValueError):
    """The text is not a valid selector. The message is one line that ends with the position.

    `column`: the position in characters from 1, with line ends counted as characters; one past the last if the text
    ends too early.
    """

    def __init__(self, problem: str, column: int) -> None:
        super().__init__(one_line(f"{problem}, at column {column}"))
        self.column = column
