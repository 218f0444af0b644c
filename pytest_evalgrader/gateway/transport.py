"""One attempt at a call, over HTTP: what came back, or why it failed and whether to try again.

Model calls go through the openai package's low-level `post`, without its retries and its parsing, so that every odd
body is told apart here. It is imported with the first call.
"""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import json
import math
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from .bodies import error_text
from .providers import DEFAULT_PROVIDER, EndpointConfig, ProviderConfig, Providers, scrub, scrub_json

if TYPE_CHECKING:
    import httpx
    import openai

# A provider that wants a longer pause has no quota left for this run.
LONGEST_PAUSE_S = 120.0
_RETRIED = frozenset((408, 409, 425, 429))
_NO_QUOTA = ("insufficient_quota", "billing_hard_limit_reached", "billing_not_active")
_PATHS = {"responses": "/responses", "chat_completions": "/chat/completions", "embeddings": "/embeddings"}
# What is sent to providers other than openai; the openai package would add the account's organization, project and
# OPENAI_CUSTOM_HEADERS to every address.
_HEADERS = frozenset(
    (
        b"host",
        b"accept",
        b"accept-encoding",
        b"connection",
        b"content-type",
        b"content-length",
        b"transfer-encoding",
        b"user-agent",
        b"x-stainless-raw-response",
    )
)
# Asks the openai package for the answer unparsed; it looks at the request for it, so that it has to be sent.
_RAW = "x-stainless-raw-response"
_RAW_BYTES = _RAW.encode()

Path = Literal["responses", "chat_completions", "embeddings"]


class AttemptFailed(Exception):
    """An attempt got no usable answer.

    Args:
        message: What happened; already without secrets.
        type_name: Short name of the kind of failure.
        retry: Whether another attempt may pass.
        limited: The provider says that it is asked too often.
        pause_s: How long it wants to be left alone, or None.
        status: The HTTP status, or None.
        data: The JSON body of the answer, or None.
    """

    def __init__(
        self,
        message: str,
        type_name: str,
        *,
        retry: bool,
        limited: bool = False,
        pause_s: float | None = None,
        status: int | None = None,
        data: object = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.type_name = type_name
        self.retry = retry
        self.limited = limited
        self.pause_s = pause_s
        self.status = status
        self.data = data


class Transport:
    """The HTTP clients of a process. Used from one event loop.

    Args:
        providers: For addresses, keys and headers.
    """

    def __init__(self, providers: Providers) -> None:
        self._providers = providers
        self._clients: dict[str, openai.AsyncOpenAI] = {}
        self._http: httpx.AsyncClient | None = None

    def prepare(self, provider: ProviderConfig) -> None:
        """Make the client of a provider, which takes its time once.

        Raises:
            CallError: The key's variable is not set.
        """
        self._client(provider)

    async def post(self, provider: ProviderConfig, path: Path, body: Mapping[str, Any], timeout_s: float) -> Any:
        """Ask a provider once.

        Args:
            body: JSON values only.
            timeout_s: Bound on the attempt, up to the last byte.

        Returns:
            The JSON of the answer.

        Raises:
            AttemptFailed: No usable answer.
            CallError: The key's variable is not set.
        """
        client = self._client(provider)
        import openai

        url = self._providers.base_url(provider) + _PATHS[path]
        try:
            async with asyncio.timeout(timeout_s):
                reply: Any = await client.post(
                    _PATHS[path],
                    cast_to=object,
                    body=dict(body),
                    options={"headers": {_RAW: "true"}, "timeout": timeout_s, "max_retries": 0},
                )
            return self._parse(reply.status_code, reply.headers, reply.content, url, provider)
        except (TimeoutError, openai.APITimeoutError):
            raise self._timed_out(url, timeout_s) from None
        except openai.APIConnectionError as error:
            raise self._no_connection(url, error.__cause__ or error) from None
        except openai.APIStatusError as error:
            response = error.response
            self._parse(response.status_code, response.headers, response.content, url, provider)
            raise  # not reached: every status above 299 fails in _parse
        except openai.OpenAIError as error:
            raise self._no_connection(url, error) from None

    async def ask_endpoint(
        self, endpoint: EndpointConfig, method: Literal["GET", "POST"], path: str, body: Any, timeout_s: float
    ) -> Any:
        """Ask an external endpoint once; as `post`."""
        import httpx

        headers = self._providers.headers(endpoint)
        url = self._providers.located(endpoint).join(path)
        shown = url.partition("?")[0]
        if self._http is None:
            self._http = httpx.AsyncClient(
                follow_redirects=False, limits=httpx.Limits(max_connections=1000, max_keepalive_connections=100)
            )
        try:
            async with asyncio.timeout(timeout_s):
                reply = await self._http.request(
                    method, url, json=body if method == "POST" else None, headers=headers, timeout=timeout_s
                )
            return self._parse(reply.status_code, reply.headers, reply.content, shown, None)
        except (TimeoutError, httpx.TimeoutException):
            raise self._timed_out(shown, timeout_s) from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise self._no_connection(shown, error) from None

    async def close(self) -> None:
        """Close all connections."""
        for client in self._clients.values():
            await client.close()
        if self._http is not None:
            await self._http.aclose()

    def _client(self, provider: ProviderConfig) -> openai.AsyncOpenAI:
        client = self._clients.get(provider.name)
        if client is None:
            key = self._providers.key(provider)
            import openai

            is_default = provider.name == DEFAULT_PROVIDER

            def allows(name: bytes) -> bool:
                name = name.lower()
                if is_default:
                    return name == _RAW_BYTES or not name.startswith(b"x-stainless-")
                return name in _HEADERS or (name == b"authorization" and key is not None)

            async def limit_headers(request: Any) -> None:
                kept = [(name, value) for name, value in request.headers.raw if allows(name)]
                request.headers = type(request.headers)(kept)

            client = self._clients[provider.name] = openai.AsyncOpenAI(
                api_key=key if key is not None else "no-key",
                base_url=self._providers.base_url(provider),
                max_retries=0,
                timeout=provider.timeout_seconds,
                http_client=openai.DefaultAsyncHttpxClient(
                    event_hooks={"request": [limit_headers]}, follow_redirects=False
                ),
            )
        return client

    def _parse(
        self, status: int, headers: Mapping[str, str], content: bytes, url: str, provider: ProviderConfig | None
    ) -> Any:
        secrets = self._providers.secrets()
        text = scrub(content.decode("utf-8-sig", "replace"), secrets)
        try:
            # A reward server may say NaN: that is its answer, kept as text, and no broken connection.
            data: Any = json.loads(
                text, parse_constant=str if provider is None else _refuse_constant, parse_float=_finite
            )
            if "\\" in text:
                data = scrub_json(data, secrets)
        except (ValueError, RecursionError):
            data = None
        if 200 <= status < 300:
            if data is not None:
                return data
            raise AttemptFailed(
                f"{url} answered HTTP {status} with content type {headers.get('content-type', 'none')!r} and a body "
                f"that is not JSON: {_excerpt(text)}",
                "InvalidReply",
                retry=True,
                status=status,
            )
        raise self._status_failure(status, headers, text, data, url, provider)

    def _status_failure(
        self, status: int, headers: Mapping[str, str], text: str, data: Any, url: str, provider: ProviderConfig | None
    ) -> AttemptFailed:
        said = error_text(data) if data is not None else _excerpt(text)
        message = f"HTTP {status} from {url}: {said}"
        details = data.get("error") if isinstance(data, dict) else None
        code = details.get("code") if isinstance(details, dict) else None
        retry = status >= 500 or status in _RETRIED
        pause_s = retry_after(headers) if retry else None
        type_name = {
            400: "BadRequest",
            401: "Unauthorized",
            403: "Forbidden",
            404: "NotFound",
            422: "BadRequest",
            429: "RateLimited",
        }.get(status, "ServerError" if status >= 500 else "BadStatus")
        if status in (401, 403) and provider is not None:
            message += (
                f". Look at the key in {provider.api_key_env}."
                if provider.api_key_env
                else f". Provider {provider.name} has no api_key_env in pyproject.toml, so no key was sent."
            )
        elif status == 404 and provider is not None and url.endswith("/responses") and code != "model_not_found":
            message += (
                f'. Where the server has no Responses API, set api = "chat_completions" in '
                f"[tool.evalgrader.providers.{provider.name}] of pyproject.toml."
            )
        elif status == 429 and code in _NO_QUOTA:
            retry = False
        elif 300 <= status < 400:
            message += f" (it redirects to {headers.get('location', 'nowhere')!r}; give that address instead)"
        if pause_s is not None and pause_s > LONGEST_PAUSE_S:
            message += f" (it asks to wait {pause_s:,.0f} s, longer than the {LONGEST_PAUSE_S:.0f} s waited here)"
            pause_s, retry = None, False
        return AttemptFailed(
            message, type_name, retry=retry, limited=status == 429, pause_s=pause_s, status=status, data=data
        )

    def _timed_out(self, url: str, timeout_s: float) -> AttemptFailed:
        return AttemptFailed(
            f"{url} gave no complete answer within timeout_seconds={timeout_s:g}", "CallTimeout", retry=True
        )

    def _no_connection(self, url: str, error: BaseException) -> AttemptFailed:
        why = " ".join(scrub(str(error), self._providers.secrets()).split()) or type(error).__name__
        kind = type(error).__name__
        if kind in ("ConnectError", "UnsupportedProtocol"):
            return AttemptFailed(f"cannot connect to {url}: {why}. Is the server running?", "ConnectError", retry=True)
        return AttemptFailed(f"the connection to {url} broke: {why} ({kind})", "ConnectionBroken", retry=True)


def retry_after(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """Read how long a server wants to be left alone.

    Args:
        headers: `retry-after-ms`, or `Retry-After` in seconds or as an HTTP date.
        now: The present, in seconds since the epoch; the clock's by default.

    Returns:
        Seconds from 0 up, or None where the headers do not say.
    """
    for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        with contextlib.suppress(ValueError):
            seconds = float(value) * unit_s
            if math.isfinite(seconds):
                return max(0.0, seconds)
        with contextlib.suppress(ValueError, TypeError, OverflowError):
            moment = email.utils.parsedate_to_datetime(value).timestamp()
            return max(0.0, moment - (time.time() if now is None else now))
    return None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _finite(digits: str) -> float | str:
    """Read a number; one that is too large for a float is kept as text, since no recording could hold infinity."""
    number = float(digits)
    return number if math.isfinite(number) else f"{'-' if number < 0 else ''}Infinity"


def _excerpt(text: str) -> str:
    text = " ".join(text.split())
    return repr(text if len(text) <= 200 else text[:200] + "…") if text else "nothing"
