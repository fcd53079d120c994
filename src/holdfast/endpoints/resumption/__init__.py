"""Links that may be resumed: what is kept of them beyond their end, who may come back, and how each goes on."""
