"""The process: its log, its telemetry file, its memory, the writer's thread, and commands of triggers."""
