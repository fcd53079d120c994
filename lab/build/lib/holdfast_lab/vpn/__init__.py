"""The traffic paper's experiment: clients, a root and control messages in virtual time, paced by the nodes' code."""
