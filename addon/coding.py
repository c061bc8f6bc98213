"""Content codings of HTTP, decoded as the bytes arrive (RFC 9110, section 8.4.1).

Only what mitmproxy itself brings is used: zlib, brotli and one of three zstd packages.
"""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable
from types import ModuleType
from typing import Any, Protocol

import brotli


class CorruptError(Exception):
    """The encoded bytes cannot be decoded any further; `decoded` holds what the same call had decoded before."""

    def __init__(self, reason: str, decoded: bytes) -> None:
        super().__init__(reason)
        self.decoded = decoded


class Decoder(Protocol):
    """Encoded bytes in, decoded bytes out, for one message. Raises `CorruptError`, once."""

    @property
    def whole(self) -> bool:
        """The message may end here: its coding has."""
        ...

    def feed(self, data: bytes) -> bytes: ...


class Identity:
    """No coding."""

    whole = True

    def feed(self, data: bytes) -> bytes:
        return data


class _Bytewise:
    """A decoder that loses what it had decoded when a call fails is given one byte a call: an event that
    came whole before the damage is delivered. It costs about a microsecond for an encoded byte."""

    def __init__(self) -> None:
        self._inner = self._new()
        self._begun = False

    @property
    def whole(self) -> bool:
        return not self._begun or self._is_over()

    def _new(self) -> Any:
        raise NotImplementedError

    def _is_over(self) -> bool:
        return bool(self._inner.eof)

    def _one(self, byte: bytes) -> bytes:
        raise NotImplementedError

    def feed(self, data: bytes) -> bytes:
        decoded: list[bytes] = []
        self._begun = self._begun or bool(data)
        try:
            for offset in range(len(data)):
                decoded.append(self._one(data[offset : offset + 1]))
        except Exception as error:  # each library has its own
            raise CorruptError(str(error), b"".join(decoded)) from error
        return b"".join(decoded)


class Gzip(_Bytewise):
    """gzip, or a zlib stream called gzip; members may follow one another, zero bytes may pad them."""

    def _new(self) -> Any:
        return zlib.decompressobj(zlib.MAX_WBITS | 32)

    def _one(self, byte: bytes) -> bytes:
        if self._inner.eof:
            if byte == b"\0":
                return b""
            self._inner = self._new()
        out: bytes = self._inner.decompress(byte)
        return out


class Deflate(_Bytewise):
    """deflate: a zlib stream as the RFC says, or the bare one some servers send. Bytes after its end are ignored."""

    def _new(self) -> Any:
        return None

    def _one(self, byte: bytes) -> bytes:
        if self._inner is None:
            # 8 in the low half of the first byte means zlib; a bare stream that begins so would be
            # a stored block with padding set, which no encoder writes.
            self._inner = zlib.decompressobj(zlib.MAX_WBITS if byte[0] & 0x0F == 8 else -zlib.MAX_WBITS)
        if self._inner.eof:
            return b""
        out: bytes = self._inner.decompress(byte)
        return out


class Brotli(_Bytewise):
    """br. Bytes after its end are ignored."""

    def _new(self) -> Any:
        return brotli.Decompressor()

    def _is_over(self) -> bool:
        return bool(self._inner.is_finished())

    def _one(self, byte: bytes) -> bytes:
        if self._is_over():
            return b""
        out: bytes = self._inner.process(byte)
        return out


class Zstd(_Bytewise):
    """zstd (RFC 8878): frames may follow one another."""

    def _new(self) -> Any:
        return _new_zstd()

    def _one(self, byte: bytes) -> bytes:
        if self._inner.eof:
            self._inner = self._new()
        out: bytes = self._inner.decompress(byte)
        return out


def _new_zstd() -> Any:
    """A streaming decoder with `decompress` and `eof`, from whichever package this mitmproxy brings."""
    package = _zstd_package()
    decompressor = package.ZstdDecompressor()
    return decompressor.decompressobj() if package.__name__ == "zstandard" else decompressor


def _zstd_package() -> ModuleType:
    for name in ("compression.zstd", "backports.zstd", "zstandard"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise ImportError("no zstd package")


_CODINGS: dict[str, Callable[[], Decoder]] = {
    "": Identity,
    "identity": Identity,
    "gzip": Gzip,
    "x-gzip": Gzip,
    "deflate": Deflate,
    "br": Brotli,
    "zstd": Zstd,
}


def decoder_for(content_encoding: str) -> Decoder | None:
    """The decoder for the value of a `content-encoding` header ("" where there is none).

    None when it names a coding that is not known, or several: such a body is not for us to read.
    """
    make = _CODINGS.get(content_encoding.strip().lower())
    return make() if make else None
