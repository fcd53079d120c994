"""What is wrong with a selector, and where."""

from holdfast.lines import one_line


class SelectorError(ValueError):
    """A text that is no selector. Its message is one plain line that ends in the place.

    `column`: the place, in characters from 1, line ends counted as characters; one past the last where the text ends
    too early.
    """

    def __init__(self, problem: str, column: int) -> None:
        super().__init__(one_line(f"{problem}, at column {column}"))
        self.column = column
