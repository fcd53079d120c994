"""Operations on a whole store: check, compaction, upgrade of the layout, backup and restore."""
