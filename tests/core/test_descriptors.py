"""What the node says of its file descriptors (management/status/descriptors.py)."""

from holdfast.engine.events import DescriptorsMeasured
from holdfast.management.status.descriptors import FEW
from support.rig import Node, Rig


def measured(node: Node, left: int, *, of_system: bool = False) -> list[str]:
    """The warnings afterwards."""
    node.handle(DescriptorsMeasured(left=left, most=1_024, of_system=of_system))
    assert node.core is not None
    return [condition.text for condition in node.core.warnings.all() if condition.key == "descriptors"]


def test_few_are_said_once_and_shown_until_there_are_clearly_more() -> None:
    rig = Rig()
    node = rig.node("hub")
    assert not measured(node, FEW + 1)
    for left in (FEW, 0, FEW + 1, 2 * FEW):
        (line,) = measured(node, left)
        assert line.startswith(f"file descriptors: {left} of 1024 are left")
        rig.run(30)
    assert sum("are left, and connections" in line for line in node.logs) == 1
    assert not measured(node, 2 * FEW + 1)
    assert measured(node, 0)
    assert sum("are left, and connections" in line for line in node.logs) == 2


def test_a_system_without_any_is_another_matter() -> None:
    node = Rig().node("hub")
    (line,) = measured(node, 0, of_system=True)
    assert "fs.file-max" in line and "ulimit" not in line
    assert not measured(node, 900)


def test_status_before_the_first_count() -> None:
    rig = Rig()
    node = rig.node("hub")
    code, body, _ = rig.client(node).manage("STATUS", "node")
    assert code == 200 and body["descriptors"] == {"left": None, "max": None, "short": False}
    measured(node, 3)
    code, body, _ = rig.client(node).manage("STATUS", "node")
    assert body["descriptors"] == {"left": 3, "max": 1_024, "short": True}
