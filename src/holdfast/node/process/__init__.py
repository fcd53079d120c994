"""What belongs to the process: its log, its telemetry file, its memory, the writer's thread."""
