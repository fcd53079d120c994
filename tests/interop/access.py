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
name = "orders.1"
[[queue]]
name = "orders.secret"
[[queue]]
name = "vault"
[[queue]]
name = "topic/news"

[[neighbour]]
name = "jfk"

[[group]]
name = "staff"
users = ["ann", "bob"]

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
name = "staff"
groups = ["staff"]
addresses = ["orders.*"]
allow = ["send", "receive", "browse"]
[[access]]
name = "no secrets"
groups = ["staff"]
addresses = ["orders.secret"]
deny = ["receive", "browse"]
[[access]]
name = "bob looks"
users = ["bob"]
addresses = ["orders.secret"]
allow = ["browse"]
[[access]]
name = "cleo"
users = ["cleo"]
addresses = ["orders.*"]
allow = ["send", "receive", "browse", "delete"]
[[access]]
name = "not cleo"
users = ["cleo"]
addresses = ["orders.secret"]
deny = ["send", "delete"]
[[access]]
name = "dan relays"
users = ["dan"]
addresses = ["*@jfk"]
allow = ["relay"]
[[access]]
name = "not there"
users = ["dan"]
addresses = ["y@jfk"]
deny = ["relay"]
[[access]]
name = "dan"
users = ["dan"]
addresses = ["topic/*"]
allow = ["send", "receive"]
[[access]]
name = "root"
users = ["root"]
addresses = ["*"]
allow = ["administer"]
[[access]]
name = "not even root"
users = ["root"]
addresses = ["vault"]
deny = ["receive", "browse"]
"""

USERS: Final = ("ann", "bob", "cleo", "dan", "root", "eve")
ADDRESSES: Final = (
    "in", "out", "shown", "orders.1", "orders.secret", "vault", "none", "x@jfk", "y@jfk", "$dead-letters", "topic/news",
)  # fmt: skip
HOWS: Final = ("send", "message", "receive", "browse", "purge")
"""A sender is attached; a message is sent on a link without an address; a receiver, or a browser, is attached; a
request is made to purge a queue."""

SENDS: Final = "send message"
ALL: Final = " ".join(HOWS)
ALLOWED: Final[dict[str, dict[str, str]]] = {
    "ann": {
        "in": SENDS, "out": "receive", "shown": "browse", "orders.1": f"{SENDS} receive browse",
        "orders.secret": SENDS, "topic/news": SENDS,
    },
    "bob": {"shown": "browse", "orders.1": f"{SENDS} receive browse", "orders.secret": f"{SENDS} browse"},
    "cleo": {"shown": "browse", "orders.1": ALL, "orders.secret": "receive browse"},
    "dan": {"shown": "browse", "x@jfk": SENDS, "topic/news": f"{SENDS} receive"},
    "root": {address: ALL if address != "vault" else f"{SENDS} purge" for address in ADDRESSES},
    "eve": {"shown": "browse"},
}  # fmt: skip
"""By user and address, what the node is to allow; nothing where neither is named."""

ROWS: Final = [
    (user, how, address, how in ALLOWED[user].get(address, "").split())
    for user in USERS
    for address in ADDRESSES
    for how in HOWS
    if address != "$dead-letters" or how not in SENDS
]
"""User, how, address, and whether it is allowed. Nobody can send to `$dead-letters`, whatever his rights."""


def guarded_node(nodes: Nodes, folder: Path) -> NodeProcess:
    (folder / "password").write_text(f"{PASSWORD}\n")
    config = folder / "node.toml"
    users = "".join(f'[[user]]\nname = "{user}"\npassword_file = "{folder}/password"\n' for user in USERS)
    config.write_text(CONFIG.format(folder=folder) + users)
    return nodes.start(None, config=config, listen=None)
