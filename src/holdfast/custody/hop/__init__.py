"""One hop: both ends of the custody links between two neighbours (CUSTODY, "The hop")."""
