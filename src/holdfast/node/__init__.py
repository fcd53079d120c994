"""The node as a process: an asyncio driver around the sans-IO `NodeCore` (docs/adr/0005-node-runtime.md)."""
