"""A node with access lists, and what its users find there, for clients of other projects.

Rules of this file: the table says of each row whether the node is to allow it; the clients only try.
"""

from pathlib import Path
from typing import Final

from interop.nodes import Nodes
from support.process import NodeProcess

PASSWORD: Final = "pass word"

CONFIG: Final = """
[node]
name = "hub"
data = "{folder}/hub.holdfast"
listen = ["127.0.0.1:0"]

[[queue]]
name = "in"
[[queue]]
name = "out"
[[queue]]
name = "shown"
[[queue]]
name = "topic/news"

[[user]]
name = "ann"
password_file = "{folder}/password"
[[user]]
name = "root"
password_file = "{folder}/password"

[[neighbour]]
name = "jfk"

[[access]]
name = "ann sends"
users = ["ann"]
addresses = ["in", "topic/news"]
allow = ["send"]
[[access]]
name = "ann receives"
users = ["ann"]
addresses = ["out"]
allow = ["receive"]
[[access]]
name = "all browse"
addresses = ["sh*"]
allow = ["browse"]
[[access]]
name = "root"
users = ["root"]
addresses = ["*"]
allow = ["administer"]
"""

ROWS: Final = (
    # user, how, address, allowed
    ("ann", "send", "in", True),
    ("ann", "send", "topic/news", True),
    ("ann", "send", "out", False),
    ("ann", "send", "none", False),
    ("ann", "send", "x@jfk", False),
    ("ann", "receive", "out", True),
    ("ann", "receive", "in", False),
    ("ann", "receive", "shown", False),
    ("ann", "receive", "topic/news", False),
    ("ann", "receive", "$dead-letters", False),
    ("ann", "browse", "shown", True),
    ("ann", "browse", "out", False),
    ("ann", "browse", "$dead-letters", False),
    ("ann", "message", "in", True),
    ("ann", "message", "out", False),
    ("ann", "message", "none", False),
    ("ann", "message", "x@jfk", False),
    ("root", "send", "out", True),
    ("root", "send", "x@jfk", True),
    ("root", "receive", "$dead-letters", True),
    ("root", "receive", "in", True),
    ("root", "browse", "out", True),
    ("root", "message", "shown", True),
    ("root", "message", "x@jfk", True),
)


def guarded_node(nodes: Nodes, folder: Path) -> NodeProcess:
    (folder / "password").write_text(f"{PASSWORD}\n")
    config = folder / "node.toml"
    config.write_text(CONFIG.format(folder=folder))
    return nodes.start(None, config=config, listen=None)
