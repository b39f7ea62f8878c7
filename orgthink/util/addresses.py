"""Where servers are: their URLs, and the proxies on the way to them."""

from __future__ import annotations

from importlib.util import find_spec
from urllib.request import getproxies

import httpx2

from orgthink.util.errors import UserError
from orgthink.util.redaction import conceal_proxies
from orgthink.util.secrets import expand


def server_url(text: str) -> httpx2.URL:
    """Parse the URL of a server, with the values of its `${NAME}`.

    ValueError, without the URL, which may hold a secret, unless it is http(s)://HOST…
    """
    text = expand(text)
    if any(map(str.isspace, text)):  # where a login ends could not be told
        raise ValueError("write a URL without spaces; %20 stands for one within it")
    try:
        url = httpx2.URL(text)
    except (httpx2.InvalidURL, ValueError) as error:
        raise ValueError("write a URL as http://HOST:PORT") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise ValueError("write a URL with http:// or https://, such as http://HOST:PORT")
    _require_address(url)
    return url


def require_proxies() -> None:
    """Hide the logins of the proxies that the environment names. UserError for one that cannot be used."""
    proxies = conceal_proxies()
    none = "*" in [host.strip() for host in getproxies().get("no", "").split(",")]
    for scheme in () if none else proxies.keys() & {"http", "https", "all"}:
        proxy = proxies[scheme]
        try:
            _require_address(httpx2.URL(proxy))
            httpx2.Proxy(proxy)
            usable = not proxy.lower().startswith("socks") or find_spec("socksio") is not None
        except (httpx2.InvalidURL, ValueError):
            usable = False
        if not usable:
            where = f"{scheme.upper()}_PROXY"
            raise UserError(f"{where} names no proxy that can be used here: write http://HOST:PORT, or unset {where}")


def _require_address(url: httpx2.URL) -> None:
    """ValueError for a port that there is not."""
    if url.port is not None and not 0 <= url.port < 1 << 16:
        raise ValueError("a port is a number from 1 to 65535")
