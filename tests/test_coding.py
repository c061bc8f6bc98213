"""Content codings, decoded as they arrive."""

import gzip
import importlib
import importlib.util
import zlib
from collections.abc import Callable

import brotli
import pytest
from mitmproxy.net import encoding

from addon.coding import CorruptError, decoder_for

EVENTS = [b'data: {"delta": "%d"}\n\n' % number for number in range(40)]
PLAIN = b"".join(EVENTS)


def raw_deflate(data: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return compressor.compress(data) + compressor.flush()


def zstd(data: bytes) -> bytes:
    encoded: bytes = encoding.encode(data, "zstd")
    return encoded


def flushed(wbits: int) -> list[bytes]:
    """Each event in a piece of its own, as a gateway sends them."""
    compressor = zlib.compressobj(wbits=wbits)
    pieces = [compressor.compress(event) + compressor.flush(zlib.Z_SYNC_FLUSH) for event in EVENTS]
    return [*pieces, compressor.flush()]


def brotli_flushed() -> list[bytes]:
    compressor = brotli.Compressor()
    return [*(compressor.process(event) + compressor.flush() for event in EVENTS), compressor.finish()]


ENCODED: list[tuple[str, str, bytes]] = [
    ("no header", "", PLAIN),
    ("identity", "identity", PLAIN),
    ("gzip", "gzip", gzip.compress(PLAIN)),
    ("gzip under its old name", "x-gzip", gzip.compress(PLAIN)),
    ("gzip in capitals", " GZip ", gzip.compress(PLAIN)),
    ("gzip, one member an event", "gzip", b"".join(map(gzip.compress, EVENTS))),
    ("gzip, padded", "gzip", gzip.compress(PLAIN) + bytes(9)),
    ("gzip, flushed", "gzip", b"".join(flushed(31))),
    ("zlib called gzip", "gzip", zlib.compress(PLAIN)),
    ("deflate", "deflate", zlib.compress(PLAIN)),
    ("deflate, flushed", "deflate", b"".join(flushed(15))),
    ("deflate, bare", "deflate", raw_deflate(PLAIN)),
    ("deflate, bare and flushed", "deflate", b"".join(flushed(-15))),
    ("br", "br", brotli.compress(PLAIN)),
    ("br, flushed", "br", b"".join(brotli_flushed())),
    ("zstd", "zstd", zstd(PLAIN)),
    ("zstd, one frame an event", "zstd", b"".join(map(zstd, EVENTS))),
]


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
@pytest.mark.parametrize(("header", "encoded"), [row[1:] for row in ENCODED], ids=[row[0] for row in ENCODED])
def test_decodes_whatever_the_cuts(header: str, encoded: bytes, size: int) -> None:
    decoder = decoder_for(header)
    assert decoder
    pieces = [encoded[start : start + size] for start in range(0, len(encoded), size)]
    assert b"".join(map(decoder.feed, pieces)) == PLAIN


FLUSHED = [("gzip", flushed(31)), ("deflate", flushed(15)), ("deflate", flushed(-15)), ("br", brotli_flushed())]
FLUSHED_IDS = ["gzip", "deflate", "bare deflate", "br"]


@pytest.mark.parametrize(("header", "pieces"), FLUSHED, ids=FLUSHED_IDS)
def test_an_event_comes_out_when_it_has_come_in(header: str, pieces: list[bytes]) -> None:
    decoder = decoder_for(header)
    assert decoder
    assert [decoder.feed(piece) for piece in pieces[:-1]] == EVENTS


@pytest.mark.parametrize("header", ["gzip, br", "br,gzip", "gzip, identity", "compress", "dcb", "aws-chunked"])
def test_leaves_what_it_does_not_know(header: str) -> None:
    assert decoder_for(header) is None


@pytest.mark.parametrize(("header", "pieces"), FLUSHED, ids=FLUSHED_IDS)
@pytest.mark.parametrize("size", [1, 1 << 20])
def test_delivers_what_came_before_the_damage(header: str, pieces: list[bytes], size: int) -> None:
    damaged = b"".join(pieces[:10]) + b"\xff" * 400
    decoder = decoder_for(header)
    assert decoder
    decoded = b""
    with pytest.raises(CorruptError) as caught:
        for start in range(0, len(damaged), size):
            decoded += decoder.feed(damaged[start : start + size])
    assert (decoded + caught.value.decoded).startswith(b"".join(EVENTS[:10]))


def test_a_wrong_checksum_is_damage() -> None:
    encoded = gzip.compress(PLAIN)
    decoder = decoder_for("gzip")
    assert decoder
    with pytest.raises(CorruptError) as caught:
        decoder.feed(encoded[:-8] + bytes(8))
    assert caught.value.decoded == PLAIN


def installed(packages: list[str]) -> list[str]:
    found = importlib.util.find_spec
    return [name for name in packages if found(name.partition(".")[0]) and found(name)]


@pytest.mark.parametrize("package", installed(["compression.zstd", "backports.zstd", "zstandard"]))
def test_every_zstd_package_that_is_here(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module(package)
    monkeypatch.setattr("addon.coding._zstd_package", lambda: module)
    decoder = decoder_for("zstd")
    assert decoder
    encoded = zstd(PLAIN) + zstd(PLAIN)
    assert decoder.feed(encoded[:100]) + decoder.feed(encoded[100:]) == PLAIN + PLAIN


def test_text_that_was_never_encoded_is_damage() -> None:
    raising: list[Callable[[bytes], bytes]] = [
        decoder.feed for name in ("gzip", "br", "zstd") if (decoder := decoder_for(name))
    ]
    assert len(raising) == 3
    for feed in raising:
        with pytest.raises(CorruptError) as caught:
            feed(PLAIN)
        assert caught.value.decoded == b""
