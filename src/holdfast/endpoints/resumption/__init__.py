"""Links that may be resumed: what is kept after their end, who may resume them, and how."""
