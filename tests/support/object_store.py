"""An object store of a test's own that speaks S3's protocol: moto, as a process; the test skips where there is none."""

import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from support.postgresql import free_port

LIMIT_S: Final = 60.0
BUCKET: Final = "bucket"


@contextmanager
def object_store() -> Iterator[dict[str, str]]:
    """What a client needs to reach it, by the names that object stores' clients have; it has an empty bucket."""
    for module in ("moto", "flask", "flask_cors"):
        pytest.importorskip(module, reason=f"{module} is not installed")
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            for line in server.stderr:
                if "Running on" in line:
                    break
            else:
                raise AssertionError(f"moto ended with exit code {server.wait(LIMIT_S)}")
            url = f"http://127.0.0.1:{port}"
            made = urllib.request.Request(f"{url}/{BUCKET}", method="PUT")
            with urllib.request.urlopen(made, timeout=LIMIT_S):
                pass
            yield {
                "AWS_ENDPOINT_URL": url,
                "AWS_ACCESS_KEY_ID": "ann",
                "AWS_SECRET_ACCESS_KEY": "secret",
                "AWS_REGION": "us-east-1",
                "AWS_ALLOW_HTTP": "true",
            }
        finally:
            server.terminate()
