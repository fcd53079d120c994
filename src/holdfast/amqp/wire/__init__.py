"""Values and frames: the type system, the composite types, and the fast forms of the usual frames."""
