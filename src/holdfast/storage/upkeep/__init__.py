"""What is done to a store as a whole: checked, compacted, upgraded, backed up and restored."""
