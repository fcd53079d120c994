"""The day from which the short forms of long campaigns draw, for helpers that no fixture reaches.

Rules of this file: set once, by `tests/conftest.py`.
"""

number = 0
"""As the fixture `day` has it."""
