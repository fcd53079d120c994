"""`holdfast pipeline report traffic`: from sweeps' tables to the report as text, JSON, document and picture.

Rules of this file: what is typed in, and what is printed or written; everything in it comes from the tables.
"""

import argparse
from pathlib import Path

from holdfast.errors import ConfigError
from holdfast.lines import json_line, say
from holdfast.marked_pages import put_into
from pyspark_holdfast.traffic.page import BEGIN, END, page
from pyspark_holdfast.traffic.runs import read_runs
from pyspark_holdfast.traffic.summary import summary


def report_traffic(args: argparse.Namespace) -> int:
    """`args`: tables, page, picture, json. Exit code 1 where a line of the acceptance table does not hold."""
    document = None
    if args.page is not None:
        try:
            document = Path(args.page).read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"cannot read {args.page}: {error.strerror}; expected a document with markers") from error
        put_into(document, [], BEGIN, END)  # a document without markers is refused before anything is made
    runs = [run for table in args.tables for run in read_runs(table)]
    report = summary(runs)
    lines = page(report)
    if args.picture is not None:
        from pyspark_holdfast.traffic.pictures import draw

        draw(runs, report, Path(args.picture))
    if document is not None:
        Path(args.page).write_text(put_into(document, lines, BEGIN, END), encoding="utf-8")
    say(*([json_line(report)] if args.json else lines))
    return 0 if report["holds"] else 1
