"""Arrival of messages at their destination: each once, in order, with a check of its path."""
