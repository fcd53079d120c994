"""The sending half: a message is kept until it has an outcome, over whatever link there is."""
