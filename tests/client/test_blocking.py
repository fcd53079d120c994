"""The client without an event loop: what an interruption leaves behind."""

import signal
import subprocess
import sys

from client.fake_broker import free_port

INTERRUPTED = """
import sys
from holdfast.client.blocking import BlockingConnection

connection = BlockingConnection(sys.argv[1])
try:
    connection.open()
except KeyboardInterrupt:
    sys.exit(130)
finally:
    connection.close()
"""


def test_an_interruption_while_the_node_is_not_there_leaves_no_noise() -> None:
    url = f"amqp://127.0.0.1:{free_port()}"
    with subprocess.Popen([sys.executable, "-c", INTERRUPTED, url], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "trying again" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        try:
            _, errors = process.communicate(timeout=20)
        finally:
            process.kill()
    assert process.returncode == 130 and errors == ""
