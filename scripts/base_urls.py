"""An addon for mitmproxy that scripts/run adds: once the proxy listens, it prints the base URLs to give the client."""

from __future__ import annotations

from mitmproxy import ctx
from mitmproxy.addons.proxyserver import Proxyserver

ANYWHERE = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "[::1]"}


def running() -> None:
    proxy = ctx.master.addons.get("proxyserver")  # type: ignore[no-untyped-call]
    assert isinstance(proxy, Proxyserver)
    for host, port, *_ in proxy.listen_addrs()[:1]:
        print(base_urls(host, port), flush=True)


def base_urls(host: str, port: int) -> str:
    """What to tell the user of a proxy that listens there, on all addresses where that is none."""
    base = f"http://{ANYWHERE.get(host) or (f'[{host}]' if ':' in host else host)}:{port}"
    return "\n".join(
        [
            "Base URL to give the client (its key stays as it is):",
            f"  OpenAI-compatible     {base}  or  {base}/v1",
            f"  Anthropic-compatible  {base}/anthropic",
        ]
    )
