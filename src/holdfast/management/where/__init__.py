"""Where a message is: what is asked, and how it is found."""
