"""A scanner of TLS, sslyze, against the listener of a node: versions, cipher suites, and known weaknesses."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from interop.nodes import Nodes
from support.certificates import needs_openssl, of_node
from support.process import NodeProcess

SSLYZE: Final = Path(sys.prefix, "sslyze", "bin", "sslyze")
"""In an environment of its own (tools/setup.sh)."""
pytestmark = [
    pytest.mark.interop,
    needs_openssl,
    pytest.mark.skipif(not SSLYZE.exists(), reason="sslyze is not installed; make setup installs it where it can"),
]
LIMIT_S = 120.0
SCANS: Final = (
    "sslv2", "sslv3", "tlsv1", "tlsv1_1", "tlsv1_2", "tlsv1_3", "reneg", "compression", "heartbleed", "openssl_ccs",
    "robot", "fallback", "ems", "early_data", "elliptic_curves",
)  # fmt: skip
CURVES: Final = {"X25519", "X448", "secp256r1", "secp384r1", "secp521r1"}
"""Elliptic curves of at least 128 bits of security."""

Scan = dict[str, Any]


@pytest.fixture(scope="module")
def node(shared_nodes: Nodes, tmp_path_factory: pytest.TempPathFactory) -> NodeProcess:
    directory, identity = tmp_path_factory.mktemp("scanned"), of_node()
    file = directory / "hub.toml"
    file.write_text(
        f'[node]\nname = "hub"\ndata = "{directory}/hub.holdfast"\nlisten = ["amqps://127.0.0.1:0"]\n'
        f'[tls]\ncertificate_file = "{identity.certificate}"\nkey_file = "{identity.key}"\n'
    )
    return shared_nodes.start(None, config=file, listen=None)


@pytest.fixture(scope="module")
def scan(node: NodeProcess, tmp_path_factory: pytest.TempPathFactory) -> Scan:
    """What each scan found."""
    file = tmp_path_factory.mktemp("scan") / "scan.json"
    command = [str(SSLYZE), "--quiet", "--mozilla_config=disable", f"--json_out={file}"]
    command += [*(f"--{name}" for name in SCANS), f"localhost:{node.ready['amqps'].rpartition(':')[2]}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert file.exists(), done.stdout + done.stderr
    (found,) = json.loads(file.read_text())["server_scan_results"]
    assert found["scan_status"] == "COMPLETED", found["connectivity_error_trace"]
    scans = {name: told for name, told in found["scan_result"].items() if told["status"] != "NOT_SCHEDULED"}
    assert len(scans) == len(SCANS) and {told["status"] for told in scans.values()} == {"COMPLETED"}, scans
    return {name: told["result"] for name, told in scans.items()}


def suites(scan: Scan, version: str) -> set[str]:
    return {told["cipher_suite"]["name"] for told in scan[f"{version}_cipher_suites"]["accepted_cipher_suites"]}


def test_only_tls_1_2_and_1_3_are_spoken_with_forward_secrecy_and_authenticated_encryption(scan: Scan) -> None:
    for version in ("ssl_2_0", "ssl_3_0", "tls_1_0", "tls_1_1"):
        assert not suites(scan, version) and not scan[f"{version}_cipher_suites"]["is_tls_version_supported"], version
    old, new = suites(scan, "tls_1_2"), suites(scan, "tls_1_3")
    assert old and new
    assert all(name.startswith("TLS_ECDHE_") and ("_GCM_" in name or "_CHACHA20_" in name) for name in old), old
    assert all("_GCM_" in name or "_CHACHA20_" in name for name in new), new
    assert {curve["name"] for curve in scan["elliptic_curves"]["supported_curves"]} <= CURVES


def test_no_known_weakness_is_found(scan: Scan) -> None:
    renegotiation = scan["session_renegotiation"]
    assert renegotiation["client_renegotiations_success_count"] == 0
    assert not renegotiation["is_vulnerable_to_client_renegotiation_dos"]
    assert not scan["tls_compression"]["supports_compression"]
    assert not scan["tls_1_3_early_data"]["supports_early_data"], "what comes early can be played back"
    assert not scan["heartbleed"]["is_vulnerable_to_heartbleed"]
    assert not scan["openssl_ccs_injection"]["is_vulnerable_to_ccs_injection"]
    assert scan["robot"]["robot_result"].startswith("NOT_VULNERABLE")
    assert scan["tls_fallback_scsv"]["supports_fallback_scsv"]
    assert scan["tls_extended_master_secret"]["supports_ems_extension"]


def test_a_scanned_node_is_well(scan: Scan, node: NodeProcess) -> None:
    assert scan
    assert not [line for line in node.stderr.splitlines() if " ERROR " in line or "Traceback" in line]
