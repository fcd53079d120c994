"""What the store keeps of queues, origins, producers and links as rows, and the sets of numbers in them."""
