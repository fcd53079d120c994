"""Access lists: who may do what at which address. A pure decision from rules that an administrator wrote."""
