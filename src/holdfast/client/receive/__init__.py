"""The receiving half: deliveries, their outcomes, and what is known of them over breaks of the connection."""
