"""SASLprep: one normal form of a password, whichever equivalent characters a keyboard produced. RFC 4013, with the
tables of RFC 3454.

Rules of this file: pure. Unicode's tables are loaded for a text that is not ASCII, and for no other.
"""


def prepared(text: str) -> bytes:
    """The text in its normal form, in UTF-8. A text that RFC 4013 does not allow is used unchanged."""
    if text.isascii():
        return text.encode()
    found = _prepared(text)
    return (text if found is None else found).encode("utf-8", "surrogatepass")


def _prepared(text: str) -> str | None:
    """None for a text that RFC 4013 does not allow (§2.3 to §2.5)."""
    import stringprep as tables
    from unicodedata import ucd_3_2_0

    mapped = "".join(" " if tables.in_table_c12(char) else char for char in text if not tables.in_table_b1(char))
    mapped = ucd_3_2_0.normalize("NFKC", mapped)
    if not mapped:
        return None
    forbidden = (
        tables.in_table_a1, tables.in_table_c12, tables.in_table_c21_c22, tables.in_table_c3, tables.in_table_c4,
        tables.in_table_c5, tables.in_table_c6, tables.in_table_c7, tables.in_table_c8, tables.in_table_c9,
    )  # fmt: skip
    if any(is_in(char) for char in mapped for is_in in forbidden):
        return None
    if any(map(tables.in_table_d1, mapped)):  # written from right to left: wholly, from its first to its last
        whole = tables.in_table_d1(mapped[0]) and tables.in_table_d1(mapped[-1])
        if not whole or any(map(tables.in_table_d2, mapped)):
            return None
    return mapped
