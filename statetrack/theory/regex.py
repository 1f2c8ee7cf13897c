r"""Regular expressions over single letters, as minimal automata.

The dialect: alternation `|` (an alternative may be empty), concatenation, `* + ? {m} {m,n} {m,}`, groups `(...)` and
`(?:...)`, classes `[a-c_]` and `[^a-c_]`, `.`, and the escapes `\d \w \s` (ASCII), `\n \t \xHH \uHHHH` and a
backslash before a character that is neither letter nor digit. The whole word must match; `^` may stand first and `$`
last. A blank is a letter; `\ ( ) [ ] { } | * + ? . ^ $` need a backslash outside a class, `\ ]` inside. All else is
refused with its position: lazy and possessive marks, back-references, look-around, `\b`, anchors in the middle, `{,n}`.
The alphabet is the one given, or the sorted letters used; `.` and `[^x]` need it given. A letter that is written
alone must be in a given alphabet; a range and `\d \w \s` are cut to it.

Main definitions: `parse_regex`.

Main results: the automaton of a pattern is total and minimal, and a repeat {m,n} costs n copies, not recursion.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from string import ascii_letters, digits
from typing import cast

from lark import Lark, ParseTree, Token, Transformer_NonRecursive
from lark.exceptions import UnexpectedCharacters, UnexpectedToken, VisitError

from statetrack.errors import InvalidInput, RegexSyntaxError

from .automata import Dfa, minimise
from .nfa import Letters, Step, alternate, concatenate, repeat, run_steps

_GRAMMAR = r"""
?start: _CARET? alt _DOLLAR?
alt: cat ("|" cat)*
cat: rep*
rep: atom (QUANT | LAZY)?
?atom: _OPEN alt _CLOSE | LOOK | letter | charclass
letter: CHAR | DOT | ESCAPE
charclass: (CLASS | NOTCLASS) (RANGE | ESCAPE | MEMBER)+ _ENDCLASS
_CARET: "^"
_DOLLAR: "$"
_OPEN: "(?:" | "("
_CLOSE: ")"
LOOK.2: /\(\?(?!:)/
LAZY.2: /([*+?]|\{[0-9]+(,[0-9]*)?\})[?+]/
QUANT: /[*+?]|\{[0-9]+(,[0-9]*)?\}/
DOT: "."
CHAR: /[^\\()\[\]{}|*+?.^$]/s
ESCAPE.2: /\\(x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|.)/s
NOTCLASS: "[^"
CLASS: "["
_ENDCLASS: "]"
RANGE.3: /(\\(x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|.)|[^\]\\])-(\\(x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|.)|[^\]\\])/s
MEMBER: /[^\]\\]/s
"""
_WORD = frozenset(digits + ascii_letters + "_")
_SHORT = {"d": frozenset(digits), "w": _WORD, "s": frozenset(" \t\n\r\f\v")}
_FAULTS = {
    "\\": "backslash with nothing after it",
    "^": "anchor '^' elsewhere than at the start",
    "$": "anchor '$' elsewhere than at the end",
    ")": "')' was never opened, closed",
}
# Large enough for any repeat whose automaton fits the budget on states, small enough for memory.
_STEPS_PER_STATE = 50


def parse_regex(pattern: str, alphabet: Sequence[str] | None = None, *, max_states: int = 20000) -> Dfa:
    """The minimal total acceptor of the words that match the whole pattern.

    Args:
        pattern: text in the dialect of this module; the empty pattern matches only the empty word.
        alphabet: single letters, in the order of the automaton's columns; by default the sorted letters used.
        max_states: bound on the states of the subset construction.

    Raises:
        RegexSyntaxError: text outside the dialect or the alphabet, with the position counted from 0.
        BudgetExceeded: more than `max_states` subset states, or a pattern of more than 50 steps for each of them.
        InvalidInput: a symbol of the alphabet that is not a single letter.

    >>> parse_regex("(0|1(01*0)*1)*").run("110")
    (False, True, True)
    """
    for symbol in alphabet or ():
        if len(symbol) != 1:
            raise InvalidInput(f"alphabet: {symbol!r} is not a single letter; write symbols of a pattern as letters")
    scan = _Scan(pattern, None if alphabet is None else frozenset(alphabet))
    tree = scan.parse()
    symbols = tuple(sorted(frozenset[str]().union(*scan.letters.values()))) if alphabet is None else tuple(alphabet)
    try:
        steps = _Compiler(scan.letters, frozenset(symbols), _STEPS_PER_STATE * max_states).transform(tree)
    except VisitError as error:
        raise error.orig_exc from None
    dfa = minimise(run_steps(symbols, steps, max_states=max_states))
    return replace(dfa, states=tuple(str(q) for q in range(len(dfa.states))))


class _Scan:
    """Reads the tokens of a pattern from left to right, so that the first fault is the one reported."""

    def __init__(self, pattern: str, alphabet: Letters | None) -> None:
        self.pattern, self.alphabet = pattern, alphabet
        self.letters: dict[int, Letters] = {}
        self.open: list[int] = []
        self.open_class: int | None = None
        self.dollar: int | None = None

    def parse(self) -> ParseTree:
        """The parse tree; `letters` then holds, for the position of each letter, range or escape, what it reads."""
        interactive = _parser().parse_interactive(self.pattern)  # pyright: ignore[reportUnknownMemberType]
        last = None
        try:
            for last in interactive.iter_parse():
                self._take(last)
            return interactive.feed_eof(last)  # pyright: ignore[reportUnknownMemberType]
        except UnexpectedToken as error:
            token = cast(Token, error.token)
            raise self._fault(len(self.pattern) if token.type == "$END" else _position(token)) from None
        except UnexpectedCharacters as error:
            raise self._fault(cast(int, error.pos_in_stream)) from None

    def _take(self, token: Token) -> None:
        at, text = _position(token), str(token)
        match token.type:
            case "_OPEN":
                self.open.append(at)
            case "_CLOSE" if not self.open:
                raise self._fault(at)
            case "_CLOSE":
                self.open.pop()
            case "CLASS" | "NOTCLASS" | "_ENDCLASS":
                self.open_class = None if text == "]" else at
            case "_DOLLAR":
                self.dollar = at
            case "CHAR" | "MEMBER" | "ESCAPE":
                self.letters[at] = self._letters(at, text)
            case "RANGE":
                self.letters[at] = self._range(at, text)
            case "LAZY":
                raise self._error(at + len(text) - 1, f"lazy or possessive mark {text[-1]!r} is not in the dialect")
            case "QUANT" if (bounds := re.match(r"\{(.+),(.+)\}", text)) and _count(bounds[1]) > _count(bounds[2]):
                raise self._error(at, f"repeat {text} asks for more at least than at most")
            case "LOOK":
                look = self.pattern[at + 2 : at + 3] in ("=", "!", "<")
                raise self._error(at, ("look-around" if look else "group extension") + " is not in the dialect")
            case _:
                pass
        if self.alphabet is None and token.type in ("DOT", "NOTCLASS"):
            raise self._error(at, f"{text!r} needs a stated alphabet (--alphabet), there is none")

    def _letters(self, at: int, text: str) -> Letters:
        if text[0] == "\\" and text[1] in _SHORT:
            short = _SHORT[text[1]]
            return short if self.alphabet is None else short & self.alphabet
        letter = self._single(at, text)
        if self.alphabet is not None and letter not in self.alphabet:
            raise self._error(at, f"letter {letter!r} is not in the alphabet")
        return frozenset(letter)

    def _range(self, at: int, text: str) -> Letters:
        cut = text.index("-", 2 if text[0] == "\\" else 1)
        ends = self._single(at, text[:cut]), self._single(at + cut + 1, text[cut + 1 :])
        if ends[0] > ends[1]:
            raise self._error(at, f"range {text} runs backwards")
        if self.alphabet is not None:
            return frozenset(letter for letter in self.alphabet if ends[0] <= letter <= ends[1])
        return frozenset(map(chr, range(ord(ends[0]), ord(ends[1]) + 1)))

    def _single(self, at: int, text: str) -> str:
        """The letter that a plain character or an escape stands for."""
        if text[0] != "\\":
            return text
        kind = text[1]
        if kind in "xu" and len(text) == 2:
            raise self._error(at, f"\\{kind} needs {2 if kind == 'x' else 4} hexadecimal digits")
        if kind in "xu":
            return chr(int(text[2:], 16))
        if kind in "nt" or not kind.isalnum():
            return {"n": "\n", "t": "\t"}.get(kind, kind)
        what = "back-reference" if kind.isdigit() else "class in a range" if kind in _SHORT else "escape"
        raise self._error(at, f"{what} {text} is not in the dialect")

    def _fault(self, at: int) -> RegexSyntaxError:
        """What is wrong where the grammar allows no further token."""
        found = self.pattern[at : at + 1]
        if self.dollar is not None:
            return self._error(self.dollar, "anchor '$' before the end")
        if not found:
            at = self.open[-1] if self.open_class is None else self.open_class
            return self._error(at, f"{self.pattern[at]!r} is never closed, opened")
        if self.open_class is not None and found != "\\":
            return self._error(at, "class without a letter (the bracket itself is \\]), closed")
        if found in "*+?" or re.match(r"\{[0-9]+(,[0-9]*)?\}", self.pattern[at:]):
            return self._error(at, f"{found!r} has nothing to repeat")
        return self._error(at, _FAULTS.get(found, f"{found!r} starts no repeat or class (the letter is \\{found})"))

    def _error(self, position: int, reason: str) -> RegexSyntaxError:
        return RegexSyntaxError(self.pattern, position, reason)


class _Compiler(Transformer_NonRecursive[Token, list[Step]]):
    """Turns a parse tree, from the leaves up, into the steps of a nondeterministic automaton."""

    def __init__(self, letters: dict[int, Letters], alphabet: Letters, limit: int) -> None:
        super().__init__()
        self.letters, self.alphabet, self.limit = letters, alphabet, limit

    def letter(self, children: list[Token]) -> list[Step]:
        return [(self.letters.get(_position(children[0]), self.alphabet), (1,))]

    def charclass(self, children: list[Token]) -> list[Step]:
        chosen = frozenset[str]().union(*(self.letters[_position(token)] for token in children[1:]))
        return [(self.alphabet - chosen if children[0].type == "NOTCLASS" else chosen, (1,))]

    def cat(self, children: list[list[Step]]) -> list[Step]:
        return concatenate(children, limit=self.limit)

    def alt(self, children: list[list[Step]]) -> list[Step]:
        return alternate(children)

    def rep(self, children: list[list[Step] | Token]) -> list[Step]:
        body = children[0]
        assert isinstance(body, list)
        if len(children) == 1:
            return body
        mark = str(children[1])
        low, comma, high = {"*": "0,", "+": "1,", "?": "0,1"}.get(mark, mark[1:-1]).partition(",")
        most = None if comma and not high else _count(high or low)
        return repeat(body, _count(low), most, limit=self.limit)


@cache
def _parser() -> Lark:
    return Lark(_GRAMMAR, parser="lalr", lexer="contextual")


def _count(digits: str) -> int:
    """The number, or one that is as far beyond every bound when it has more than ten digits."""
    return int(digits.lstrip("0")[:10] or "0")


def _position(token: Token) -> int:
    return int(token.start_pos or 0)
