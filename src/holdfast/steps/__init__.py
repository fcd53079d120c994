"""Steps: what a link between queues does to each message on its way (docs/adr/0068).

Rules of this package: a step is a function of a message and of the rows of its windows; it knows neither links nor
stores, and has no clock. If it cannot handle a message, it raises StepFailed, with one line.
"""
