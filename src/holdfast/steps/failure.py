"""Why a step cannot take a message."""


class StepFailed(Exception):
    """In words that follow "step 1 (convert): "."""
