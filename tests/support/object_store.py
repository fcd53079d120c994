"""An object store of a test's own that speaks as much of S3's protocol as a table needs, in a process of its own.

Rules of this file: objects are in memory; signatures are not checked. `If-None-Match: *` refuses an object that is
there, in one step: that is what commits of two writers rely on. A client of the same process could hold the lock that
the server needs, so it is another one.
"""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

BUCKET: Final = "bucket"


@contextmanager
def object_store() -> Iterator[dict[str, str]]:
    """What a client needs to reach it, by the names that object stores' clients have; it has an empty bucket."""
    with subprocess.Popen([sys.executable, __file__], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield {
                "AWS_ENDPOINT_URL": f"http://127.0.0.1:{int(server.stdout.readline())}",
                "AWS_ACCESS_KEY_ID": "ann",
                "AWS_SECRET_ACCESS_KEY": "secret",
                "AWS_REGION": "us-east-1",
                "AWS_ALLOW_HTTP": "true",
            }
        finally:
            server.terminate()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    objects: Final[dict[str, bytes]] = {}
    parts: Final[dict[str, dict[int, bytes]]] = {}
    """Of uploads that have begun, by their ids."""
    lock: Final = threading.Lock()

    def _answer(self, code: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    @property
    def _key(self) -> str:
        """The object's name, after the bucket's."""
        return unquote(urlsplit(self.path).path).lstrip("/").partition("/")[2]

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        query = parse_qs(urlsplit(self.path).query)
        if "uploadId" in query:
            self.parts[query["uploadId"][0]][int(query["partNumber"][0])] = body
            self._answer(200, ETag=f'"{len(body)}"')
            return
        with self.lock:
            if self.headers.get("If-None-Match") == "*" and self._key in self.objects:
                self._answer(412)
                return
            self.objects[self._key] = body
        self._answer(200, ETag=f'"{len(body)}"')

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        if "list-type" in query:
            self._list(query)
            return
        body = self.objects.get(self._key)
        if body is None:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        first, size = 0, len(body)
        if asked := self.headers.get("Range"):
            begin, _, end = asked.removeprefix("bytes=").partition("-")
            first = int(begin) if begin else size - int(end)
            last = min(int(end), size - 1) if begin and end else size - 1
            body = body[first : last + 1]
            told = {"Content_Range": f"bytes {first}-{last}/{size}"}
        else:
            told = {}
        self._answer(206 if told else 200, body, Last_Modified=_MODIFIED, ETag=f'"{size}"', **told)

    def do_POST(self) -> None:
        """Begins or completes an upload in parts."""
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        query = parse_qs(urlsplit(self.path).query, keep_blank_values=True)
        if "uploads" in query:
            upload = f"upload-{len(self.parts)}"
            self.parts[upload] = {}
            text = f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
        else:
            found = self.parts[query["uploadId"][0]]
            self.objects[self._key] = b"".join(found[number] for number in sorted(found))
            text = f"<CompleteMultipartUploadResult><ETag>{len(found)}</ETag></CompleteMultipartUploadResult>"
        self._answer(200, text.encode(), Content_Type="application/xml")

    def do_HEAD(self) -> None:
        body = self.objects.get(self._key)
        if body is None:
            self._answer(404)
        else:
            size = str(len(body))
            self._answer(200, Last_Modified=_MODIFIED, ETag=f'"{size}"', Content_Length=size)

    def do_DELETE(self) -> None:
        self.objects.pop(self._key, None)
        self._answer(204)

    def _list(self, query: dict[str, list[str]]) -> None:
        prefix, after = (query.get(name, [""])[0] for name in ("prefix", "start-after"))
        found = sorted(key for key in self.objects if key.startswith(prefix) and key > after)
        rows = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(self.objects[key])}</Size>"
            f"<LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>x</ETag></Contents>"
            for key in found
        )
        text = f"<ListBucketResult><IsTruncated>false</IsTruncated>{rows}</ListBucketResult>"
        self._answer(200, text.encode(), Content_Type="application/xml")

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


_MODIFIED: Final = "Thu, 01 Jan 2026 00:00:00 GMT"

if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    sys.stdout.write(f"{server.server_address[1]}\n")
    sys.stdout.flush()
    server.serve_forever()
