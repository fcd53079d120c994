"""Why a step cannot handle a message."""


class StepFailed(Exception):
    """In words that follow "step 1 (convert): "."""
