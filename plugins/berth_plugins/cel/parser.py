"""Tokens -> the syntax tree, with the macros expanded.

Recursive descent over the grammar of CEL. The depth of a tree is limited as upstream limits it.

Source: `cel-go` parser/gen/CEL.g4 and parser/parser.go, v0.29.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from berth_plugins.cel import lexer, macros
from berth_plugins.cel.errors import NO_PLACE, CelError, Issues
from berth_plugins.cel.lexer import END, ESCAPED, IDENTIFIER, Token, tokens_of
from berth_plugins.cel.pieces import count
from berth_plugins.cel.syntax import (
    Broken,
    Call,
    Entry,
    Ident,
    ListNode,
    Literal,
    MapNode,
    Node,
    Select,
    StructNode,
)
from berth_plugins.cel.values import INT_MAX, INT_MIN, UINT_MAX, Uint, text_to_float

_MAX_DEPTH: Final = 250
_MAX_LENGTH: Final = 100_000
_MAX_DIGITS: Final = 20
_RELATIONS: Final = frozenset({"<", "<=", ">=", ">", "==", "!=", "in"})
_SUMS: Final = frozenset({"+", "-"})
_PRODUCTS: Final = frozenset({"*", "/", "%"})
_RESERVED: Final = frozenset(
    [
        "as",
        "break",
        "const",
        "continue",
        "else",
        "false",
        "for",
        "function",
        "if",
        "import",
        "in",
        "let",
        "loop",
        "package",
        "namespace",
        "null",
        "return",
        "true",
        "var",
        "void",
        "while",
    ]
)
_STARTS: Final = (
    "[",
    "{",
    "(",
    ".",
    "-",
    "!",
    "true",
    "false",
    "null",
    "NUM_FLOAT",
    "NUM_INT",
    "NUM_UINT",
    "STRING",
    "BYTES",
    "IDENTIFIER",
)
_AFTER_OPERAND: Final = frozenset({END, "?", ":", ",", ".", "[", ")", "]", "}", "||", "&&"}) | (
    _RELATIONS | _SUMS | _PRODUCTS
)
_CLOSED_SIGNS: Final = frozenset(_STARTS[:9]) | {")", "]", "}", ",", ":", "?", "in"}


class _SyntaxError(CelError):
    """The text ends or goes on in a way that the grammar does not have."""

    def __init__(self, offset: int, message: str) -> None:
        super().__init__(message)
        self.offset = offset


def parse(text: str, issues: Issues) -> Node:
    """Return the tree of a text. Errors are reported; after the first syntax error the rest is not read."""
    if len(text) > _MAX_LENGTH:
        issues.add(
            NO_PLACE,
            f"expression code point size exceeds limit: size: {len(text)}, limit {_MAX_LENGTH}",
        )
        return Broken(NO_PLACE)
    parser = _Parser(tokens_of(text, issues), issues)
    try:
        return parser.whole()
    except _SyntaxError as err:
        issues.add(err.offset, str(err))
        return Broken(NO_PLACE)


class _Parser:
    def __init__(self, tokens: list[Token], issues: Issues) -> None:
        self._tokens = tokens
        self._issues = issues
        self._at = 0
        self._depths: Counter[str] = Counter()

    def whole(self) -> Node:
        node = self._expression()
        if self._next.kind != END:
            raise self._unexpected(END)
        if node.depth > _MAX_DEPTH:
            raise _SyntaxError(NO_PLACE, "max recursion depth exceeded")
        return node

    # --- tokens ---

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    @property
    def _second(self) -> Token:
        return self._tokens[min(self._at + 1, len(self._tokens) - 1)]

    def _take(self) -> Token:
        count(2 * lexer.WORK)
        token = self._tokens[self._at]
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def _takes(self, kind: str) -> Token | None:
        return self._take() if self._next.kind == kind else None

    def _expect(self, kind: str) -> Token:
        if self._next.kind == kind:
            return self._take()
        raise self._unexpected(kind)

    def _unexpected(self, kind: str) -> _SyntaxError:
        """Return the error for a token that stands where only one kind may stand."""
        wanted = f"'{kind}'" if kind not in (END, IDENTIFIER) else kind
        token = self._next
        if self._second.kind == kind and token.kind != END:
            text = f"extraneous input '{token.text}' expecting {wanted}"
        elif kind != END and token.kind in _AFTER_OPERAND and kind in (")", "]", "}"):
            text = f"missing {wanted} at '{token.text}'"
        else:
            text = f"mismatched input '{token.text}' expecting {wanted}"
        return _SyntaxError(token.offset, f"Syntax error: {text}")

    def _no_operand(self, *also: str) -> _SyntaxError:
        """Return the error for a token that begins no operand. `also`: what else may stand there."""
        token = self._next
        place = _STARTS.index("true") if also == ("?",) else 3
        kinds = [*_STARTS[:place], *also, *_STARTS[place:]]
        wanted = ", ".join(f"'{one}'" if one in _CLOSED_SIGNS or one in also else one for one in kinds)
        fits = token.kind != END and self._second.kind in kinds
        text = f"{'extraneous' if fits else 'mismatched'} input '{token.text}' expecting {{{wanted}}}"
        return _SyntaxError(token.offset, f"Syntax error: {text}")

    @contextmanager
    def _rule(self, name: str) -> Iterator[None]:
        """Count how deep a rule of the grammar is in itself."""
        self._depths[name] += 1
        if self._depths[name] > _MAX_DEPTH:
            raise _SyntaxError(NO_PLACE, f"expression recursion limit exceeded: {_MAX_DEPTH}")
        try:
            yield
        finally:
            self._depths[name] -= 1

    # --- operators ---

    def _expression(self) -> Node:
        with self._rule("expr"):
            first = self._chain("||")
            mark = self._takes("?")
            if mark is None:
                return first
            then = self._chain("||")
            self._expect(":")
            return self._compound(Call(mark.offset, "_?_:_", (first, then, self._expression())))

    def _chain(self, sign: str) -> Node:
        """Read operands of `||`, or of `&&`. The operators are associative: a chain is one call."""
        operands = [self._chain("&&") if sign == "||" else self._relation()]
        offsets: list[int] = []
        while (token := self._takes(sign)) is not None:
            offsets.append(token.offset)
            operands.append(self._chain("&&") if sign == "||" else self._relation())
        if not offsets:
            return operands[0]
        node = Call(offsets[len(offsets) // 2], f"_{sign}_", operands)
        node.depth = max(one.depth for one in operands)
        return node

    def _relation(self) -> Node:
        with self._rule("relation"):
            left = self._sum()
            while self._next.kind in _RELATIONS:
                token = self._take()
                function = "@in" if token.kind == "in" else f"_{token.kind}_"
                with self._rule("relation"):
                    right = self._sum()
                left = self._compound(Call(token.offset, function, (left, right)))
            return left

    def _sum(self) -> Node:
        with self._rule("calc"):
            left = self._product()
            while self._next.kind in _SUMS:
                token = self._take()
                with self._rule("calc"):
                    right = self._product()
                left = self._compound(Call(token.offset, f"_{token.kind}_", (left, right)))
            return left

    def _product(self) -> Node:
        left = self._unary()
        while self._next.kind in _PRODUCTS:
            token = self._take()
            with self._rule("calc"):
                right = self._unary()
            left = self._compound(Call(token.offset, f"_{token.kind}_", (left, right)))
        return left

    def _unary(self) -> Node:
        sign = self._next
        if sign.kind not in ("-", "!") or (
            sign.kind == "-" and self._second.kind in (lexer.INT, lexer.FLOAT)
        ):
            return self._member()
        count = 0
        while self._takes(sign.kind) is not None:
            count += 1
        operand = self._member()
        if count % 2 == 0:
            return operand
        node = Call(sign.offset, f"{sign.kind}_", (operand,))
        node.depth = operand.depth
        return node

    # --- operands ---

    def _member(self) -> Node:
        node = self._primary()
        while (sign := self._next.kind) in (".", "["):
            node = self._compound(self._selected(node) if sign == "." else self._indexed(node))
        return node

    def _selected(self, operand: Node) -> Node:
        dot = self._take()
        is_optional = self._takes("?") is not None
        if self._next.kind not in (IDENTIFIER, ESCAPED):
            token = self._next
            text = f"no viable alternative at input '.{token.text}'"
            if token.kind in ("true", "false", "null"):
                text = f"mismatched input '{token.text}' expecting IDENTIFIER"
            if token.kind == END:
                text = "no viable alternative at input '.'"
            raise _SyntaxError(token.offset, f"Syntax error: {text}")
        name = self._take()
        field = name.text.strip("`")
        if is_optional:
            return Call(dot.offset, "_?._", (operand, Literal(name.offset, field)))
        if name.kind == IDENTIFIER and self._next.kind == "(":
            paren = self._take()
            return self._call(paren.offset, name.text, self._arguments(")"), operand)
        return Select(dot.offset, operand, field)

    def _indexed(self, operand: Node) -> Node:
        bracket = self._take()
        function = "_[_]" if self._takes("?") is None else "_[?_]"
        if self._next.kind == END:
            raise self._no_operand("?")
        index = self._expression()
        self._expect("]")
        return Call(bracket.offset, function, (operand, index))

    def _primary(self) -> Node:
        token = self._next
        if token.kind == "(":
            self._take()
            node = self._expression()
            self._expect(")")
            return node
        if token.kind == "[":
            return self._list()
        if token.kind == "{":
            return self._map()
        if token.kind == IDENTIFIER or (token.kind == "." and self._second.kind == IDENTIFIER):
            return self._named()
        return self._literal()

    def _named(self) -> Node:
        start = self._next
        dot = "." if self._takes(".") else ""
        message = self._message_name()
        if message is not None:
            return self._message(dot + message)
        name = self._take()
        if self._next.kind == "(":
            paren = self._take()
            arguments = self._arguments(")")
            if name.text in _RESERVED:
                return self._broken(start.offset, f"reserved identifier: {name.text}")
            return self._call(paren.offset, dot + name.text, arguments)
        if name.text in _RESERVED:
            return self._broken(start.offset, f"reserved identifier: {name.text}")
        return Ident(name.offset, dot + name.text)

    def _message_name(self) -> str | None:
        """Return the name of a message whose fields follow, and move to the bracket; None for others."""
        at, names = self._at, []
        while self._tokens[at].kind == IDENTIFIER:
            names.append(self._tokens[at].text)
            if self._tokens[at + 1].kind == "{":
                self._at = at + 1
                return ".".join(names)
            if self._tokens[at + 1].kind != ".":
                return None
            at += 2
        return None

    def _message(self, name: str) -> Node:
        bracket = self._expect("{")
        entries: list[Entry] = []
        while self._next.kind not in ("}", END):
            is_optional = self._takes("?") is not None
            if self._next.kind not in (IDENTIFIER, ESCAPED):
                raise self._unexpected("}")
            field = self._take().text.strip("`")
            colon = self._expect(":")
            entries.append(Entry(colon.offset, field, self._expression(), is_optional=is_optional))
            if self._takes(",") is None:
                break
        self._expect("}")
        return self._holding(StructNode(bracket.offset, name, entries), [one.value for one in entries])

    def _list(self) -> Node:
        bracket = self._take()
        elements: list[Node] = []
        optional: set[int] = set()
        while self._next.kind not in ("]", END):
            if self._takes("?") is not None:
                optional.add(len(elements))
            elements.append(self._expression())
            if self._takes(",") is None:
                break
        self._expect("]")
        return self._holding(ListNode(bracket.offset, elements, frozenset(optional)), elements)

    def _map(self) -> Node:
        bracket = self._take()
        entries: list[Entry] = []
        parts: list[Node] = []
        while self._next.kind not in ("}", END):
            is_optional = self._takes("?") is not None
            key = self._expression()
            colon = self._expect(":")
            value = self._expression()
            entries.append(Entry(colon.offset, key, value, is_optional=is_optional))
            parts += (key, value)
            if self._takes(",") is None:
                break
        self._expect("}")
        return self._holding(MapNode(bracket.offset, entries), parts)

    def _literal(self) -> Node:
        start = self._next
        sign = "-" if self._takes("-") else ""
        token = self._next
        read = _LITERALS.get(token.kind)
        if read is None or (sign and token.kind not in (lexer.INT, lexer.FLOAT)):
            raise self._no_operand()
        self._take()
        try:
            return Literal(start.offset, read(sign + token.text))
        except ValueError as err:
            return self._broken(start.offset, str(err))

    def _arguments(self, end: str) -> list[Node]:
        if self._takes(end) is not None:
            return []
        if self._next.kind == END:
            raise self._no_operand(end)
        found = [self._expression()]
        while self._takes(",") is not None:
            found.append(self._expression())
        self._expect(end)
        return found

    # --- nodes ---

    def _call(self, offset: int, function: str, args: list[Node], target: Node | None = None) -> Node:
        depth = max((one.depth for one in (*args, *(() if target is None else (target,)))), default=0)
        try:
            node = macros.expanded(offset, function, args, target)
        except macros.MacroError as err:
            node = self._broken(err.offset, str(err))
        if node is None:
            node = Call(offset, function, args, target)
        node.depth = depth
        return node

    def _compound(self, node: Node) -> Node:
        """Count a node that upstream counts in the depth of a tree."""
        if isinstance(node, Select):
            node.depth = node.operand.depth + 1
        elif isinstance(node, Call) and node.target is None and node.depth == 0:
            node.depth = max((one.depth for one in node.args), default=0) + 1
        else:
            node.depth += 1
        return node

    def _holding(self, node: Node, parts: list[Node]) -> Node:
        node.depth = max((one.depth for one in parts), default=0)
        return node

    def _broken(self, offset: int, message: str) -> Node:
        self._issues.add(offset, message)
        return Broken(offset)


def _int(text: str) -> int:
    number = _whole(text)
    if number is None or not INT_MIN <= number <= INT_MAX:
        raise ValueError("invalid int literal")
    return number


def _uint(text: str) -> Uint:
    number = _whole(text[:-1])
    if number is None or number > UINT_MAX:
        raise ValueError("invalid uint literal")
    return Uint(number)


def _whole(text: str) -> int | None:
    """Return the number; None for one of more digits than any literal has."""
    if len(text.lstrip("-0x")) > _MAX_DIGITS:
        return None
    return int(text, 16) if "0x" in text else int(text)


def _float(text: str) -> float:
    try:
        return text_to_float(text)
    except ValueError as err:
        raise ValueError("invalid double literal") from err


_LITERALS: Final[dict[str, Callable[[str], object]]] = {
    lexer.INT: _int,
    lexer.UINT: _uint,
    lexer.FLOAT: _float,
    lexer.STRING: lexer.text_of,
    lexer.BYTES: lexer.bytes_of,
    "true": lambda _: True,
    "false": lambda _: False,
    "null": lambda _: None,
}
