"""Where a message is: the questions between nodes, and the search at each node."""
