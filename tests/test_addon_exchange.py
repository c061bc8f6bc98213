"""The pipe between mitmproxy and the core: what must hold whatever the rewriter behind it does."""

import gzip
from collections.abc import Iterable, Iterator

import pytest

from addon import exchange
from addon.coding import Gzip, Identity
from addon.exchange import Collector, Exchange, Pipe
from dsml_core.report import Report


class Holding:
    """A rewriter that holds everything from a `<` on, and writes capitals."""

    def __init__(self) -> None:
        self.report = Report("openai-chat")
        self.waiting = b""
        self.closed: list[bool] = []

    lane = None

    @property
    def held(self) -> int:
        return len(self.waiting)

    @property
    def waits(self) -> bool:
        return bool(self.waiting)

    def goes_by(self, data: bytes) -> bytes | None:
        return None

    def feed(self, data: bytes) -> bytes:
        before, mark, after = (self.waiting + data).partition(b"<")
        self.waiting = mark + after
        return before.upper()

    def close(self, clean: bool = True) -> bytes:
        self.closed.append(clean)
        return self.flush_idle()

    def flush_idle(self) -> bytes:
        waiting, self.waiting = self.waiting, b""
        return waiting


class Failing(Holding):
    """One whose every step fails."""

    def feed(self, data: bytes) -> bytes:
        raise RuntimeError("feed")

    def close(self, clean: bool = True) -> bytes:
        raise RuntimeError("close")

    def flush_idle(self) -> bytes:
        raise RuntimeError("flush")


class Uncountable(Holding):
    """One that cannot say how much it holds."""

    @property
    def held(self) -> int:
        raise RuntimeError("held")


def through(pipe: Pipe, *pieces: bytes) -> bytes:
    """What the client gets, after checking that no piece is empty."""
    sent = [piece for data in (*pieces, b"") for piece in pipe(data)]
    assert all(sent)
    return b"".join(sent)


def test_nothing_held_is_lost() -> None:
    rewriter = Holding()
    assert through(Pipe(rewriter, Identity()), b"ab", b"c<d", b"e") == b"ABC<de"
    assert rewriter.closed == [True]


def test_a_silent_provider_and_one_that_breaks_off() -> None:
    rewriter = Holding()
    pipe = Pipe(rewriter, Identity())
    assert pipe(b"a<") == [b"A"]
    assert pipe.flush_idle() == b"<"
    assert pipe.flush_idle() == b""
    assert pipe(b"b<c") == [b"B"]
    assert pipe.abort() == b"<c"
    assert pipe.abort() == pipe.flush_idle() == b""
    assert rewriter.closed == [False]


def test_a_failing_rewriter_costs_no_byte() -> None:
    pipe = Pipe(Failing(), Identity())
    assert through(pipe, b"ab", b"<c") == b"ab<c"
    assert isinstance(pipe.fault, RuntimeError)


def test_a_rewriter_that_fails_when_it_is_asked_outside_of_the_stream() -> None:
    pipe = Pipe(Failing(), Identity())
    assert pipe.flush_idle() == b""
    assert through(pipe, b"ab") == b"ab"
    assert Pipe(Failing(), Identity()).abort() == b""


def test_a_rewriter_that_cannot_say_what_it_holds_costs_nothing() -> None:
    pipe = Pipe(Uncountable(), Identity())
    assert through(pipe, b"a <b") == b"A <b"
    assert str(pipe.fault) == "held"


def test_observing_changes_nothing() -> None:
    rewriter = Holding()
    pipe = Pipe(rewriter, Gzip(), observe=True)
    encoded = gzip.compress(b"ab<c")
    assert through(pipe, encoded[:9], encoded[9:]) == encoded
    assert rewriter.closed == [True]


@pytest.mark.parametrize("rewriter", [Holding(), Failing()])
def test_observing_what_cannot_be_read_changes_nothing(rewriter: Holding) -> None:
    pipe = Pipe(rewriter, Gzip(), observe=True)
    assert through(pipe, b"no gzip", b"at all") == b"no gzipat all"
    assert pipe.flush_idle() == pipe.abort() == b""


def test_damage_ends_the_response_after_what_was_decoded() -> None:
    rewriter = Holding()
    pipe = Pipe(rewriter, Gzip())
    assert through(pipe, gzip.compress(b"ab<c") + b"damage", gzip.compress(b"more")) == b"AB<c"
    assert pipe.broken
    assert rewriter.closed == [False]


def doubled(data: bytes) -> Iterable[bytes]:
    """Another addon's stream callable: a generator, with an empty piece and something at the end."""

    def pieces() -> Iterator[bytes]:
        yield data
        yield b""
        yield data or b"end"

    return pieces()


def one_piece(data: bytes) -> bytes:
    return data


def failing(data: bytes) -> bytes:
    raise ValueError(data)


@pytest.mark.parametrize(
    ("source", "result"), [(one_piece, b"AB"), (doubled, b"AABBEND"), (failing, b"AB")], ids=["one", "many", "failing"]
)
def test_a_callable_that_was_there_before_comes_first(source: exchange.Source, result: bytes) -> None:
    assert through(Pipe(Holding(), Identity(), source=source), b"a", b"b") == result


def test_a_body_is_repaired_in_one_piece_and_white_space_before_it_is_not_kept_back() -> None:
    rewriter = Holding()
    pipe = Pipe(Collector(rewriter), Identity())
    assert pipe(b"\n \n") == [b"\n \n"]
    assert pipe(b"\n{") == []
    assert pipe(b"a") == []
    assert pipe.flush_idle() == b""
    assert pipe(b"}\n") == []
    assert pipe(b"") == [b"\n{A}\n"]
    assert rewriter.closed == [True]


def test_a_body_over_the_limit_is_not_kept() -> None:
    rewriter = Holding()
    pipe = Pipe(Collector(rewriter, limit=4), Identity())
    assert pipe(b"abcd") == []
    assert pipe(b"e") == [b"abcde"]
    assert pipe(b"f") == [b"f"]
    assert pipe(b"") == []
    assert rewriter.closed == []


def test_a_body_that_breaks_off_goes_out_as_it_came() -> None:
    rewriter = Holding()
    pipe = Pipe(Collector(rewriter), Identity())
    assert pipe(b"ab<") == []
    assert pipe.abort() == b"ab<"


def test_the_state_of_a_flow_can_be_taken_once() -> None:
    class Flow:
        pass

    flow, state = Flow(), Exchange("openai-chat")
    assert exchange.of(flow) is exchange.detach(flow) is None
    exchange.attach(flow, state)
    assert exchange.of(flow) is exchange.detach(flow) is state
    assert exchange.of(flow) is None
