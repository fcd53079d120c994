"""Writes the API reference: an HTML page for each public module, made from its docstrings by pdoc.

    .venv/bin/python tools/reference.py [DIRECTORY]

Rules of this file: PAGES is the public API. Every omission is printed as a line, and the exit code is 1: a name that is
not there, a public name without a docstring, an annotation that pdoc cannot resolve, a link that leads nowhere.
DIRECTORY is `build/reference` where not given; pages of an earlier run are overwritten.
"""

import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Final

import pdoc.doc
import pdoc.render
from pdoc.render_helpers import to_html

ROOT: Final = Path(__file__).resolve().parent.parent
DIRECTORY: Final = ROOT / "build" / "reference"

Names = Mapping[str, tuple[str, ...] | None]
"""Public names of a module, in the order of its page. A class that is given a tuple is made by the library: these are
its public members. Of any other class all are public that do not begin with an underscore."""

_LINK: Final = ("close", "failure", "is_over", "ready")
_DELIVERY: Final = (
    "accept", "correlation_id", "delivery_count", "enqueued_ms", "message", "message_id", "modify", "process",
    "properties", "reject", "release", "reply_to", "sequence", "settled", "subject",
)  # fmt: skip
_ADMINISTRATION: Final = (
    "attachments", "change_queue", "change_subscription", "close_connection", "connections", "create_link",
    "create_queue", "delete_link", "delete_queue", "delete_subscription", "drain", "links", "network", "purge_queue",
    "queue", "queues", "register_service", "reload", "remove_service", "resume", "service", "services", "sessions",
    "start_link", "status", "stop_link", "subscriptions", "where",
)  # fmt: skip

PAGES: Final[Mapping[str, Names]] = {
    "holdfast.client": {
        "connect": None,
        "Connection": (
            "abort", "admin", "close", "container_id", "failure", "is_open", "manage", "node", "opened",
            "parts_receiver", "receiver", "reconnects", "reply", "request", "sender", "transaction", "url",
        ),
        "Sender": (
            *_LINK, "accepted", "address", "drain", "epoch", "in_doubt", "last_number", "missing", "next_number",
            "over", "post", "producer", "progress", "rejected", "released", "send", "send_parts", "spooled", "submit",
            "waits_for",
        ),
        "Receiver": (*_LINK, "address", "batch", "confirmation", "duplicates_suppressed", "ended", "received"),
        "PartsReceiver": (*_LINK, "address", "batch", "duplicates_suppressed", "ended", "received"),
        "Delivery": (*_DELIVERY, "body", "payload"),
        "DeliveryInParts": (*_DELIVERY, "discard", "parts", "save", "whole"),
        "Transaction": ("accept", "commit", "reject", "release", "rollback", "send", "submit"),
        "Administration": _ADMINISTRATION,
        "UNCHANGED": None,
        "compose": None,
        "Message": None,
        "Header": None,
        "Properties": None,
        "Outcome": None,
        "Accepted": None,
        "Rejected": None,
        "Released": None,
        "Modified": None,
        "Spooled": None,
        "Spool": None,
        "Lease": None,
        "Confirmation": None,
        "Url": None,
        "parse_url": None,
        "ClientError": None,
        "ConnectionFailed": None,
        "AuthenticationFailed": None,
        "ConnectionEnded": None,
        "LinkError": None,
        "LinkStolen": None,
        "ProducerConflict": None,
        "TransactionError": None,
        "TransactionRolledBack": None,
        "TransactionInDoubt": None,
        "ClientFull": None,
        "BodyGone": None,
        "DeliveryBroken": None,
        "UndecodableMessage": None,
        "ManagementError": None,
        "NotAccepted": None,
        "NoReply": None,
        "RequestInDoubt": None,
    },
    "holdfast.client.blocking": {
        "BlockingConnection": (
            "admin", "close", "manage", "node", "open", "read_first", "read_range", "read_range_encoded", "receiver",
            "reply", "request", "send", "sender", "transaction",
        ),
        "BlockingSender": ("close", "last_number", "missing", "next_number", "send"),
        "BlockingReceiver": ("batch", "close", "ended"),
        "BlockingDelivery": (*_DELIVERY, "body", "payload"),
        "BlockingTransaction": ("accept", "commit", "reject", "release", "rollback", "send", "submit"),
        "BlockingAdministration": _ADMINISTRATION,
        "EncodedEntry": None,
        "Entry": None,
        "LargeEntry": None,
    },
    "holdfast.errors": {
        "HoldfastError": None,
        "ConfigError": None,
        "LocalProtocolError": None,
        "RemoteProtocolError": None,
        "StorageError": None,
    },
    "pyspark_holdfast.source": {"HoldfastDataSource": ()},
    "pyspark_holdfast.session": {"start_session": None, "stop_session": None},
    "pyspark_holdfast.tables": {
        "read_table": None,
        "read_arrow": None,
        "property_of": None,
        "path_of": None,
        "count_by": None,
        "count_by_path": None,
        "identities": None,
        "variants": None,
    },
}  # fmt: skip

TITLE: Final = "Holdfast: the API for Python"
RULES: Final = re.compile(r"\s*^Rules of this \w+:.*", re.MULTILINE | re.DOTALL)
"""The part of a module's docstring for those who change it."""

DOT: Final = '</span><span class="o">.</span><span class="n">'
"""Between two names of a path in a signature, as pdoc renders it."""

TABLES: Final = {("pyspark_holdfast.source", "HoldfastDataSource"): ("docs/spark.md", "| option | default |")}
"""By public name, a table of a document that is shown below its docstring: the document, and how the table begins."""


class Mistake(Exception):
    """Why there is no reference."""


def public_module(name: str, public: Names) -> pdoc.doc.Module:
    """The module, with its public names alone. Raises Mistake where one is not there."""
    module = pdoc.doc.Module.from_name(name)
    if differ := set(getattr(module.obj, "__all__", public)) ^ set(public):
        raise Mistake(f"{name}: __all__ and tools/reference.py differ in {', '.join(sorted(differ))}")
    module.__dict__["docstring"] = RULES.sub("", module.docstring)
    found = dict(module.members)
    module.members.clear()
    for own, members in public.items():
        if own not in found:
            raise Mistake(f"{name}.{own}: not found")
        doc = module.members[own] = found[own]
        if isinstance(doc, pdoc.doc.Class):
            narrow(doc, members)
        if (name, own) in TABLES:
            doc.__dict__["docstring"] = f"{doc.docstring}\n\n{table(*TABLES[name, own])}"
    return module


def narrow(doc: pdoc.doc.Class, names: tuple[str, ...] | None) -> None:
    """Leaves the public members of a class. Those of `names` count as its own, wherever they are inherited from."""
    shown = {name for public in PAGES.values() for name in public}
    doc.bases[:] = [base for base in doc.bases if base[1] in shown or "holdfast" not in base[0]]
    doc.decorators.clear()
    found = dict(doc.members)
    doc.members.clear()
    if names is None:
        is_made_by_us = issubclass(doc.obj, BaseException)
        own = ((doc.modulename, doc.qualname), doc.taken_from)
        names = tuple(
            name
            for name, member in found.items()
            if (member.taken_from[0], member.taken_from[1].rpartition(".")[0]) in own
            and (not name.startswith("_") or (name == "__init__" and not is_made_by_us))
        )
    for name in names:
        if name not in found:
            raise Mistake(f"{doc.fullname}.{name}: not found")
    for name, member in found.items():
        if name in names:
            member.taken_from = (doc.taken_from[0], f"{doc.taken_from[1]}.{name}")
            if hasattr(doc.obj, "_fields"):  # Python's own texts, as "Alias for field number 0"
                member.__dict__["docstring"] = ""
            doc.members[name] = member


def table(document: str, beginning: str) -> str:
    text = (ROOT / document).read_text(encoding="utf-8")
    found = re.search(rf"^{re.escape(beginning)}.*\n(?:\|.*\n)+", text, re.MULTILINE)
    if found is None:
        raise Mistake(f"{document}: no table begins with {beginning!r}")
    return found[0]


def undocumented(module: pdoc.doc.Module) -> Iterator[str]:
    """Public names without a docstring. A field that the docstring of its class names in backticks has one, and so has
    each field of a dataclass or a named tuple that has one itself."""
    for doc in module.members.values():
        if not doc.docstring and doc.kind != "variable":
            yield doc.fullname
        if isinstance(doc, pdoc.doc.Class):
            is_record = is_dataclass(doc.obj) or hasattr(doc.obj, "_fields")
            for name, member in doc.members.items():
                is_told = f"`{name}`" in doc.docstring or name == "__init__" or is_record
                if not member.docstring and not ((is_told and member.kind == "variable") or name == "__init__"):
                    yield member.fullname


class Links(HTMLParser):
    """Anchors of a page, and the links in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.targets: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            if name == "href" and tag == "a" and value and ":" not in value:
                self.targets.add(value)


def broken_links(directory: Path) -> Iterator[str]:
    pages = {path.resolve(): Links(path.read_text(encoding="utf-8")) for path in sorted(directory.rglob("*.html"))}
    for path, links in pages.items():
        for target in sorted(links.targets):
            file, _, anchor = target.partition("#")
            to = pages.get((path.parent / file).resolve() if file else path)
            if to is None or (anchor and anchor not in to.anchors):
                yield f"{path.relative_to(directory.resolve())}: {target} leads nowhere"


def linked(text: str, modules: Mapping[str, pdoc.doc.Module], name: str) -> str:
    """The page of the module `name` with links for classes that are defined in a package without a page."""
    for member in modules[name].members.values():
        package, own = member.taken_from
        if member.kind == "class" and not any(package == page or package.startswith(f"{page}.") for page in modules):
            link = f'<a href="#{own}">{own}</a>'
            text = text.replace(f"{package}.{own}", link).replace(DOT.join(f"{package}.{own}".split(".")), link)
    return text


def index(modules: Mapping[str, pdoc.doc.Module]) -> str:
    """The first page: each module with its docstring, rendered as all pages are."""
    contents = "".join(
        f'<h2><a href="{name.replace(".", "/")}.html">{name}</a></h2>{to_html(module.docstring)}'
        for name, module in modules.items()
    )
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{TITLE}</title>'
        "<style>body{font-family:sans-serif;line-height:1.5;max-width:54rem;margin:3rem auto;padding:0 1rem}</style>"
        f"</head><body><h1>{TITLE}</h1>{contents}</body></html>\n"
    )


def write(directory: Path) -> list[str]:
    """Writes the pages; what is wrong with them."""
    pdoc.render.configure(docformat="markdown", show_source=False, footer_text="Holdfast", search=False)
    modules = {name: public_module(name, public) for name, public in PAGES.items()}
    for name, module in modules.items():
        file = directory / f"{name.replace('.', '/')}.html"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(linked(pdoc.render.html_module(module, modules), modules, name), encoding="utf-8")
    (directory / "index.html").write_text(index(modules), encoding="utf-8")
    lacking = [f"{name}: no docstring" for module in modules.values() for name in undocumented(module)]
    return lacking + list(broken_links(directory))


def main(arguments: list[str]) -> int:
    directory = Path(arguments[0]) if arguments else DIRECTORY
    try:
        with warnings.catch_warnings(action="error"):
            wrong = write(directory)
    except (Mistake, Warning) as error:
        wrong = [str(error)]
    for line in wrong:
        print(f"reference: {line}", file=sys.stderr)
    if not wrong:
        print(f"reference: {directory / 'index.html'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
