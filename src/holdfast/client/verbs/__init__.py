"""What the commands that are clients of a node do: send, receive, status, where, queue, subscription (docs/client.md).

`holdfast.cli` parses the arguments and imports a module from here when its command runs; the library itself imports
nothing from here. `send`, `receive` and `files` (for both) move messages; `manage` and `where` send requests to the
node. `rows` reads what is to be sent. `render`, `status_lines` and `storage_lines` make the text that is printed,
`printing` writes it. `running` and `receiving` hold what several commands share.

Rules of this package: each command takes the parsed arguments and returns an exit code; each ends in one summary or one
answer. A message is accepted once its output has been handed to the operating system. What may block (a pipe, a
terminal) is read and written in threads, so that the connection stays alive.
"""
