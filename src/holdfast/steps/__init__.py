"""Steps: what a link between queues does to each message on its way (docs/adr/0068).

Rules of this package: a step is a function of a message and of the rows of its windows, and knows neither links nor
stores; it has no clock. What it cannot do with a message is a StepFailed, in one line.
"""
