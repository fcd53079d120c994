"""The grammar of selectors, and the parser made from it. JMS 2.0 §3.8.1.1.

Rules of this file: lark is imported inside `load`, when the first selector is compiled, and nowhere else at run time. A
node without filters does not pay for it (docs/adr/0059-selectors.md).
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from holdfast.selectors.errors import SelectorError

if TYPE_CHECKING:
    from lark import Lark, Token

LEVELS_MAX: Final = 64
"""The maximum nesting of parentheses, NOT and signs."""

KEYWORDS: Final = frozenset(("NULL", "TRUE", "FALSE", "NOT", "AND", "OR", "BETWEEN", "LIKE", "IN", "IS", "ESCAPE"))
"""Reserved words, in upper or lower case. They are names only if quoted."""

CURRENCY: Final = "$\u00a2-\u00a5\u20a0-\u20c0"
"""Currency signs, as part of a character class."""
NAME_PATTERN: Final = rf"(?:[^\W\d]|[{CURRENCY}])[\w{CURRENCY}]*(?:\.[\w{CURRENCY}]+)*"
"""Java's identifiers, joined by dots: letters, digits, `_` and currency signs."""
ANNOTATION_PATTERN: Final = r"amqp\.annotation\.[\w$.:-]+"
"""The only names that may contain hyphens and colons, because the names of annotations begin with `x-opt-`."""

GRAMMAR: Final = rf"""
selector: any_of

?any_of: all_of
    | all_of (_OR all_of)+                              -> disjunction
?all_of: test
    | test (_AND test)+                                 -> conjunction

?test: sum
    | NOT test                                          -> negated
    | sum (EQUAL | UNEQUAL | LESS | LESS_EQUAL | GREATER | GREATER_EQUAL) sum  -> compared
    | sum _BETWEEN sum _AND sum                         -> between
    | sum NOT _BETWEEN sum _AND sum                     -> not_between
    | sum _IN "(" STRING ("," STRING)* ")"              -> among
    | sum NOT _IN "(" STRING ("," STRING)* ")"          -> not_among
    | sum _LIKE STRING [_ESCAPE STRING]                 -> like
    | sum NOT _LIKE STRING [_ESCAPE STRING]             -> not_like
    | sum _IS _NULL                                     -> null
    | sum _IS NOT _NULL                                 -> not_null

?sum: product
    | product ((PLUS | MINUS) product)+                 -> arithmetic
?product: sign
    | sign ((TIMES | DIVIDE) sign)+                     -> arithmetic
?sign: NAME                                             -> name
    | QUOTED                                            -> quoted
    | STRING                                            -> string
    | EXACT                                             -> exact
    | APPROXIMATE                                       -> approximate
    | TRUE                                              -> true
    | FALSE                                             -> false
    | LEFT any_of _RIGHT                                -> grouped
    | (PLUS | MINUS) sign                               -> signed

NAME.1: /{ANNOTATION_PATTERN}|{NAME_PATTERN}/
QUOTED: /"(?:[^"]|"")*+"/
STRING: /'(?:[^']|'')*+'/
APPROXIMATE.1: /(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?|[0-9]+(?:[eE][+-]?[0-9]+[fFdD]?|[fFdD])/
EXACT: /(?:0[xX][0-9a-fA-F]+|[0-9]+)[lL]?/
EQUAL: "="
UNEQUAL: "<>"
LESS: "<"
LESS_EQUAL: "<="
GREATER: ">"
GREATER_EQUAL: ">="
PLUS: "+"
MINUS: "-"
TIMES: "*"
DIVIDE: "/"
LEFT: "("
_RIGHT: ")"
BLANK: /[ \t\f\r\n]+/
%ignore BLANK
%declare _OR _AND NOT _BETWEEN _IN _LIKE _ESCAPE _IS _NULL TRUE FALSE
"""

_KEPT: Final = frozenset(("NOT", "TRUE", "FALSE"))
_OPERAND_ENDS: Final = frozenset(
    ("NAME", "QUOTED", "STRING", "EXACT", "APPROXIMATE", "TRUE", "FALSE", "_NULL", "_RIGHT")
)
_PREFIXES: Final = frozenset(("NOT", "PLUS", "MINUS"))


def is_keyword(word: str) -> bool:
    """Whether it is a reserved word. Only ASCII letters are compared without regard to case."""
    return word.isascii() and word.upper() in KEYWORDS


class _Tokens:
    """Handles tokens between lexer and parser: distinguishes keywords from names, and counts levels."""

    always_accept = ()

    def process(self, stream: "Iterator[Token]") -> "Iterator[Token]":
        """The same tokens. Raises SelectorError at the one that opens level 65."""
        level = run = 0  # `run`: prefix operators since the last operand
        outside: list[int] = []  # `run` before each open parenthesis
        last = ""
        for token in stream:
            kind = token.type
            if kind == "NAME" and is_keyword(token):
                word = token.upper()
                kind = token.type = word if word in _KEPT else f"_{word}"
            if kind == "LEFT":
                outside.append(run)
                level += 1
                run = 0
            elif kind == "_RIGHT" and outside:
                level -= 1 + run + outside.pop()
                run = 0
            elif kind in _PREFIXES and last not in _OPERAND_ENDS:
                level += 1
                run += 1
            elif kind in _OPERAND_ENDS:
                level -= run
                run = 0
            if level > LEVELS_MAX:
                problem = f"more than {LEVELS_MAX} levels of parentheses, NOT and signs"
                raise SelectorError(problem, (token.start_pos or 0) + 1)
            last = kind
            yield token


@lru_cache(1)
def load(builder: Any) -> "Lark":
    """The parser, whose rules call the methods of `builder`. The first call takes tens of milliseconds."""
    from lark import Lark

    return Lark(GRAMMAR, parser="lalr", lexer="basic", start="selector", postlex=_Tokens(), transformer=builder)
