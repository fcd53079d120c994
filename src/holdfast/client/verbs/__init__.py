"""The verbs of the command line that are clients (docs/client.md).

Rules of this room: each verb takes what `holdfast.cli` parsed and returns an exit code; every one ends in one summary
or one answer. Output is with the operating system before a message is accepted. What may wait (a pipe, a terminal) is
read and written in threads, so that the connection stays alive.
"""
