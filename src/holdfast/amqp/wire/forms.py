"""What encoding and decoding have in common: numbers of a fixed width, and how deep values nest. AMQP 1.0 §1.6."""

from struct import Struct
from typing import Final

DEPTH_MAX: Final = 32
"""Lists in lists, maps, arrays and descriptors: more than any known client nests, far from Python's own limit."""

U8: Final = Struct(">B")
U16: Final = Struct(">H")
U32: Final = Struct(">I")
U64: Final = Struct(">Q")
I8: Final = Struct(">b")
I16: Final = Struct(">h")
I32: Final = Struct(">i")
I64: Final = Struct(">q")
F32: Final = Struct(">f")
F64: Final = Struct(">d")
