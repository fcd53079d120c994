"""What bounds a store: its file system, its maximum, or the largest file that the node may write."""

from holdfast.engine.port import Space
from holdfast.units import MIB
from support.rig import Rig


def test_status_names_the_bound_that_a_store_has_reached() -> None:
    """Its file grows by whole MiB: with less than that below its maximum, or the largest file, it is at that bound."""
    node, space = Rig().node("hub"), Space(10 * MIB, 100 * MIB, 50 * MIB)
    assert node.core is not None
    disk = node.core.disk
    for found, text in (
        (space, "its file system has 50.0 MiB left"),
        (space._replace(bytes_max=11 * MIB), "its file system has"),
        (space._replace(bytes_max=11 * MIB - 1), "the store has reached [store] bytes_max"),
        (space._replace(file_limit_bytes=11 * MIB), "its file system has"),
        (space._replace(file_limit_bytes=11 * MIB - 1), "the node may write no file larger than 11.0 MiB (ulimit -f)"),
    ):
        node.store.space = lambda found=found: found  # type: ignore[method-assign,misc]
        assert disk.bounded_by().startswith(text), (found, disk.bounded_by())
