"""Where models and endpoints live: `[tool.evalgrader]` in pyproject.toml. Costs no import of a client.

Keys stay in the environment: what is kept here are the names of variables, never their values.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import parse_qsl, quote, quote_plus, urlsplit, urlunsplit

from ..errors import CallError, Problem, SuiteError

Api = Literal["responses", "chat_completions"]

DEFAULT_PROVIDER = "openai"
DEFAULT_TIMEOUT_S = 300.0
DEFAULT_MAX_RETRIES = 5
LONGEST_BACKOFF_S = 30.0
"""Most seconds of a pause before another attempt that no `Retry-After` asked for."""
OPENAI_URL = "https://api.openai.com/v1"
# Model prefixes that are not providers: other parts of the program answer for them.
RESERVED = ("recorded", "python")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*\Z")
_HEADER_VALUE = re.compile(r"[\x20-\x7e]+\Z")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z-]*\Z")  # what may stand before a credential: Bearer, ApiKey, …
_SECRET_NAME = re.compile(r"key|token|secret|sig|pass|auth|credential|code\Z", re.IGNORECASE)
_API_PATHS = ("/chat/completions", "/responses", "/embeddings")


@dataclass(frozen=True, slots=True)
class ProviderConfig:
    """A service that answers model calls.

    Args:
        name: What stands before the colon of a model's name.
        base_url: Address that `/responses`, `/chat/completions` and `/embeddings` are added to; no trailing slash.
            Empty where only `base_url_env` says it.
        api: Which of the two text APIs it speaks.
        api_key_env: Environment variable that holds the key; None where it needs none.
        timeout_seconds: Bound on one attempt, from connecting to the last byte.
        max_retries: Further attempts after a failure that may pass.
        allow_tools: Whether suites and graders may use hosted tools and state that the provider stores.
        base_url_env: Environment variable that holds the address, as an endpoint's `url_env`.
    """

    name: str
    base_url: str
    api: Api = "responses"
    api_key_env: str | None = None
    timeout_seconds: float = DEFAULT_TIMEOUT_S
    max_retries: int = DEFAULT_MAX_RETRIES
    allow_tools: bool = False
    base_url_env: str | None = None

    def longest_call_s(self, generation: Mapping[str, Any]) -> float:
        """Return a bound on the seconds one call may take, its repetitions and pauses included, but not the queue.

        Args:
            generation: The merged `generation`; what it says of time-outs and attempts comes before the provider's.
        """
        timeout_s = generation.get("timeout_seconds") or self.timeout_seconds
        retries = generation.get("max_retries")
        retries = self.max_retries if retries is None else retries
        requests = 1 + (generation.get("max_empty_retries") or 0)
        return float(requests * (timeout_s * (retries + 1) + LONGEST_BACKOFF_S * retries))


@dataclass(frozen=True, slots=True)
class EndpointConfig:
    """An external reward server.

    Args:
        label: How recordings and messages name it: the configured name, or its address without query.
        url: Address that paths such as `/score` are added to; empty where only `url_env` says it.
        headers_env: Header name → environment variable that holds its value.
        url_env: Environment variable that holds the address, read when a call is made: a fixture that starts the server
            on a free port sets it. Where it is not set, `url` counts.
    """

    label: str
    url: str
    headers_env: tuple[tuple[str, str], ...] = ()
    url_env: str | None = None

    def join(self, path: str) -> str:
        """Return the address of a path below the endpoint, its query kept."""
        parts = urlsplit(self.url)
        joined = f"{parts.path.rstrip('/')}/{path.lstrip('/')}" if path.strip("/") else parts.path
        return urlunsplit((parts.scheme, parts.netloc, joined, parts.query, ""))


class Providers:
    """The configured providers and endpoints, and the way to their keys.

    Args:
        providers: By name.
        endpoints: By name.
        env: The environment that keys are read from, at the time of the call.
        source: The file they come from, for messages.
    """

    def __init__(
        self,
        providers: Mapping[str, ProviderConfig],
        endpoints: Mapping[str, EndpointConfig],
        env: Mapping[str, str],
        source: str = "pyproject.toml",
    ) -> None:
        self._providers = dict(providers)
        self._endpoints = dict(endpoints)
        self._env = env
        self._source = source

    def __repr__(self) -> str:
        return f"Providers({', '.join(self._providers)})"

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the providers."""
        return tuple(self._providers)

    def resolve(self, model: str) -> tuple[ProviderConfig, str]:
        """Find the provider of a model.

        Args:
            model: `provider:model`, or a bare name of a model of the provider `openai`.

        Returns:
            The provider and the model's name there.

        Raises:
            SuiteError: There is no such provider, or no model is named.
        """
        prefix, colon, rest = model.partition(":")
        if not colon:
            prefix, rest = DEFAULT_PROVIDER, model
        if not rest.strip():
            raise _wrong("", f"{model!r} names no model. Write provider:model, such as openai:gpt-4.1-mini.")
        if prefix in RESERVED:
            raise _wrong("", f"{model}: a {prefix}: model answers no model calls. Name one as provider:model.")
        provider = self._providers.get(prefix)
        if provider is None:
            raise _wrong("", self._unknown_provider(model, prefix))
        return provider, rest

    def canonical(self, model: str) -> str:
        """Return `provider:model` for a model's name, also a bare one."""
        provider, name = self.resolve(model)
        return f"{provider.name}:{name}"

    def endpoint(self, name_or_url: str) -> EndpointConfig:
        """Find an endpoint by its configured name, or take a bare address, which gets no headers.

        Raises:
            SuiteError: There is no such endpoint, or the address cannot be used.
        """
        configured = self._endpoints.get(name_or_url)
        if configured is not None:
            return configured
        if "://" in name_or_url:
            problem = _url_problem(name_or_url, query=True)
            if problem:
                raise _wrong("", f"{_without_secrets(name_or_url)}: {problem}")
            return EndpointConfig(label=_without_secrets(name_or_url), url=name_or_url.strip())
        known = ", ".join(self._endpoints) or "none"
        raise _wrong(
            "",
            f"{name_or_url!r} is neither an address (http://… or https://…) nor a configured endpoint "
            f"(configured: {known}){_nearest(name_or_url, self._endpoints)} Add to {self._source}:\n"
            f'    [tool.evalgrader.endpoints.{name_or_url}]\n    url = "https://…"',
        )

    def key(self, provider: ProviderConfig) -> str | None:
        """Return a provider's key, None where it needs none.

        Raises:
            CallError: The variable is not set, or no header can hold its value.
        """
        if provider.api_key_env is None:
            return None
        key = self._env.get(provider.api_key_env, "").strip()
        if not key:
            raise CallError(self._missing_key(provider), "MissingKey")
        if not _HEADER_VALUE.match(key):
            raise CallError(f"provider {provider.name}: {_unfit(provider.api_key_env)}", "BadKey")
        return key

    def located(self, endpoint: EndpointConfig) -> EndpointConfig:
        """Return an endpoint with the address that counts now, from its variable where that is set.

        Raises:
            CallError: The variable is needed and not set, or holds no address.
        """
        if endpoint.url_env is None:
            return endpoint
        what = f"endpoint {endpoint.label}"
        table = f"url to [tool.evalgrader.endpoints.{endpoint.label}]"
        return replace(endpoint, url=self._address(endpoint.url_env, endpoint.url, what, table, query=True))

    def base_url(self, provider: ProviderConfig) -> str:
        """Return the address of a provider that counts now, from its variable where that is set.

        Raises:
            CallError: The variable is needed and not set, or holds no address.
        """
        if provider.base_url_env is None:
            return provider.base_url
        what = f"provider {provider.name}"
        table = f"base_url to [tool.evalgrader.providers.{provider.name}]"
        return join_base_url(self._address(provider.base_url_env, provider.base_url, what, table, query=False))

    def _address(self, variable: str, default: str, what: str, table: str, *, query: bool) -> str:
        address = self._env.get(variable, "").strip() or default
        if not address:
            raise CallError(
                f"{what}: the environment variable {variable}, which holds its address, is not set. Set it, let a "
                f"session-scoped autouse fixture that starts the server set it, or add {table} of {self._source}.",
                "MissingAddress",
            )
        problem = _url_problem(address, query=query)
        if problem:
            raise CallError(f"{what}: the environment variable {variable} {problem}.", "BadAddress")
        return address

    def headers(self, endpoint: EndpointConfig) -> dict[str, str]:
        """Return the headers of an endpoint.

        Raises:
            CallError: A variable is not set, or no header can hold its value.
        """
        headers = {}
        for header, variable in endpoint.headers_env:
            value = self._env.get(variable, "").strip()
            if not value:
                raise CallError(
                    f"endpoint {endpoint.label}: the environment variable {variable} (header {header}) is not set.",
                    "MissingKey",
                )
            if not _HEADER_VALUE.match(value):
                raise CallError(f"endpoint {endpoint.label}: header {header}: {_unfit(variable)}", "BadKey")
            headers[header] = value
        return headers

    def check(self, model: str, *, may_call: bool) -> list[Problem]:
        """List what is wrong with the use of a model, as far as it is known before a call.

        Args:
            model: As a suite or the command line names it.
            may_call: Whether the run may call models, so that a key is needed.

        Returns:
            The problems, with an empty `where`.
        """
        try:
            provider, _ = self.resolve(model)
        except SuiteError as error:
            return list(error.problems)
        if may_call:
            try:
                self.key(provider)
            except CallError as error:
                return [Problem("", f"{model}: {error.message}")]
        return []

    def check_endpoint(self, name_or_url: str, *, may_call: bool) -> list[Problem]:
        """List what is wrong with the use of an endpoint, as `check` does for a model."""
        try:
            endpoint = self.endpoint(name_or_url)
            if may_call:
                self.headers(endpoint)
        except SuiteError as error:
            return list(error.problems)
        except CallError as error:
            return [Problem("", error.message)]
        return []

    def secrets(self) -> tuple[str, ...]:
        """Return every configured key, header value and token of an address that is set, for `scrub`."""
        variables = [p.api_key_env for p in self._providers.values() if p.api_key_env]
        variables += [variable for e in self._endpoints.values() for _, variable in e.headers_env]
        variables += ["OPENAI_API_KEY", "OPENAI_ADMIN_KEY"]
        found = set()
        for variable in variables:
            value = self._env.get(variable, "").strip()
            found.add(value)
            scheme, _, credential = value.partition(" ")
            if credential and _SCHEME.match(scheme):
                found.add(credential.strip())
        for endpoint in self._endpoints.values():
            address = self._env.get(endpoint.url_env, "") if endpoint.url_env else ""
            for value in _query_secrets(address or endpoint.url):
                found |= {value, quote_plus(value), quote(value, safe="")}
        # Short values are placeholders of local servers ("x", "none"); replacing those would garble every text.
        return tuple(sorted((value for value in found if len(value) >= 8), key=len, reverse=True))

    def _missing_key(self, provider: ProviderConfig) -> str:
        address = provider.base_url or provider.base_url_env
        return (
            f"the environment variable {provider.api_key_env} is not set, and provider {provider.name} ({address}) "
            "needs its key there. Set it, or answer from a recording with --evals-calls=replay."
        )

    def _unknown_provider(self, model: str, prefix: str) -> str:
        return (
            f"{model}: unknown provider {prefix!r} (known: {', '.join(self._providers)})"
            f"{_nearest(prefix, self._providers)} If {model!r} is the name of a model of {DEFAULT_PROVIDER}, write "
            f"{DEFAULT_PROVIDER}:{model}; else add to {self._source}:\n"
            f"    [tool.evalgrader.providers.{prefix if _NAME.match(prefix) else 'NAME'}]\n"
            f'    base_url = "http://127.0.0.1:8000/v1"\n'
            f'    api = "chat_completions"'
        )


def scrub(text: str, secrets: Iterable[str]) -> str:
    """Replace every secret in a text by `***`."""
    for secret in secrets:
        if secret in text:
            text = text.replace(secret, "***")
    return text


def scrub_json(value: Any, secrets: Collection[str]) -> Any:
    """Return a JSON value without the secrets in its texts, keys of objects included."""
    if isinstance(value, str):
        return scrub(value, secrets)
    if isinstance(value, dict):
        return {scrub_json(key, secrets): scrub_json(inner, secrets) for key, inner in value.items()}
    if isinstance(value, list):
        return [scrub_json(inner, secrets) for inner in value]
    return value


def load_providers(pyproject: Path | None, env: Mapping[str, str]) -> Providers:
    """Read `[tool.evalgrader]`.

    Args:
        pyproject: The file, or None where the project has none.
        env: The environment; `OPENAI_BASE_URL` is read now, keys at the time of a call.

    Returns:
        The providers, `openai` among them, and the endpoints.

    Raises:
        SuiteError: With everything that is wrong in the table.
    """
    problems: list[Problem] = []
    table: dict[str, Any] = {}
    source = pyproject.name if pyproject is not None else "pyproject.toml"
    if pyproject is not None and pyproject.is_file():
        try:
            table = tomllib.loads(pyproject.read_text("utf-8-sig")).get("tool", {}).get("evalgrader", {})
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
            raise _wrong(source, f"cannot be read: {error}") from None
    read = _Reader(source, problems)
    if not isinstance(table, dict):
        read.problem("tool.evalgrader", "must be a table")
        table = {}
    read.known("tool.evalgrader", table, ("providers", "endpoints"))
    providers: dict[str, ProviderConfig] = {}
    listed = read.table("tool.evalgrader.providers", table.get("providers", {}))
    for name, entry in {DEFAULT_PROVIDER: {}, **listed}.items():
        provider = _read_provider(read, name, entry, env)
        if provider is not None:
            providers[name] = provider
    endpoints: dict[str, EndpointConfig] = {}
    for name, entry in read.table("tool.evalgrader.endpoints", table.get("endpoints", {})).items():
        endpoint = _read_endpoint(read, name, entry)
        if endpoint is not None:
            endpoints[name] = endpoint
    if problems:
        raise SuiteError(problems)
    return Providers(providers, endpoints, env, source)


def join_base_url(address: str) -> str:
    """Bring an API's address into the form that `/responses` and the like are added to.

    An address without any path gets `/v1`; the full address of an API method is cut back to what stands before it;
    any other path stays as it is.
    """
    address = address.strip().rstrip("/")
    for path in _API_PATHS:
        if address.endswith(path):
            return address[: -len(path)]
    return address if urlsplit(address).path.strip("/") else f"{address}/v1"


class _Reader:
    """Reads values strictly and gathers what is wrong."""

    def __init__(self, source: str, problems: list[Problem]) -> None:
        self._source = source
        self._problems = problems

    def problem(self, place: str, message: str) -> None:
        self._problems.append(Problem(f"{self._source}: {place}", message))

    def known(self, place: str, entry: Mapping[str, Any], keys: tuple[str, ...]) -> None:
        for key in entry:
            if key not in keys:
                self.problem(f"{place}.{key}", f"unknown key{_nearest(key, keys)} Known keys: {', '.join(keys)}.")

    def table(self, place: str, value: object) -> dict[str, Any]:
        if isinstance(value, dict):
            return value
        self.problem(place, f"must be a table, not {value!r}")
        return {}

    def value(
        self,
        place: str,
        entry: Mapping[str, Any],
        key: str,
        fits: Callable[[Any], bool],
        expected: str,
        default: Any,
        *,
        show: bool = True,
    ) -> Any:
        if key not in entry:
            return default
        if fits(entry[key]):
            return entry[key]
        self.problem(f"{place}.{key}", f"must be {expected}" + (f", not {entry[key]!r}" if show else ""))
        return default


def _read_provider(read: _Reader, name: str, entry: object, env: Mapping[str, str]) -> ProviderConfig | None:
    place = f"tool.evalgrader.providers.{name}"
    table = read.table(place, entry)
    if not _NAME.match(name):
        read.problem(place, "a provider's name has letters, digits, `_`, `.` and `-` only")
        return None
    if name in RESERVED:
        read.problem(place, f"{name}: models are answered by this program itself; choose another name")
        return None
    read.known(
        place,
        table,
        ("base_url", "base_url_env", "api", "api_key_env", "timeout_seconds", "max_retries", "allow_tools"),
    )
    base_url_env = read.value(
        place, table, "base_url_env", _is_variable, "the name of an environment variable that holds the address", None
    )
    is_default = name == DEFAULT_PROVIDER
    address = read.value(
        place,
        table,
        "base_url",
        lambda v: isinstance(v, str) and bool(v.strip()),
        'an address such as "http://…"',
        None,
    )
    from_env = is_default and address is None
    if from_env:
        address = env.get("OPENAI_BASE_URL", "").strip() or OPENAI_URL
    if address is None and base_url_env is None:
        if "base_url" not in table and "base_url_env" not in table:
            read.problem(
                place,
                'base_url is missing, such as base_url = "http://127.0.0.1:8000/v1", or base_url_env = "VARIABLE" '
                "where a variable holds it",
            )
        return None
    problem = None if address is None else _url_problem(address)
    if problem:
        if from_env:
            read.problem("environment variable OPENAI_BASE_URL", problem)
        else:
            read.problem(f"{place}.base_url", problem)
        return None
    return ProviderConfig(
        name=name,
        base_url="" if address is None else join_base_url(address),
        api=read.value(
            place, table, "api", lambda v: v in get_args(Api), 'one of "responses", "chat_completions"', "responses"
        ),
        api_key_env=read.value(
            place,
            table,
            "api_key_env",
            _is_variable,
            "the name of an environment variable (never the key itself)",
            "OPENAI_API_KEY" if is_default else None,
            show=False,
        ),
        timeout_seconds=float(
            read.value(
                place, table, "timeout_seconds", lambda v: _is_number(v) and v > 0, "seconds above 0", DEFAULT_TIMEOUT_S
            )
        ),
        max_retries=read.value(
            place,
            table,
            "max_retries",
            lambda v: isinstance(v, int) and not isinstance(v, bool) and 0 <= v <= 100,
            "a whole number from 0 to 100",
            DEFAULT_MAX_RETRIES,
        ),
        allow_tools=read.value(place, table, "allow_tools", lambda v: isinstance(v, bool), "true or false", False),
        base_url_env=base_url_env,
    )


def _read_endpoint(read: _Reader, name: str, entry: object) -> EndpointConfig | None:
    place = f"tool.evalgrader.endpoints.{name}"
    table = read.table(place, entry)
    read.known(place, table, ("url", "url_env", "headers_env"))
    url = read.value(place, table, "url", lambda v: isinstance(v, str), 'an address such as "https://…"', None)
    url_env = read.value(
        place, table, "url_env", _is_variable, "the name of an environment variable that holds the address", None
    )
    if url is None and url_env is None:
        if "url" not in table and "url_env" not in table:
            read.problem(
                place,
                'url is missing, such as url = "https://rewards.example.org", or url_env = "VARIABLE" where a variable '
                "holds it",
            )
        return None
    problem = None if url is None else _url_problem(url, query=True)
    if problem:
        read.problem(f"{place}.url", problem)
        return None
    headers = read.table(f"{place}.headers_env", table.get("headers_env", {}))
    for header, variable in headers.items():
        if not _is_variable(variable):
            read.problem(f"{place}.headers_env.{header}", "must be the name of an environment variable, not a value")
            return None
    return EndpointConfig(label=name, url=(url or "").strip(), headers_env=tuple(headers.items()), url_env=url_env)


def _is_variable(value: object) -> bool:
    return isinstance(value, str) and bool(re.match(r"[A-Za-z_][A-Za-z0-9_]*\Z", value))


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value and value != float("inf")


def _url_problem(address: str, *, query: bool = False) -> str | None:
    try:
        parts = urlsplit(address.strip())
        port_is_valid = parts.port is None or parts.port > 0
    except ValueError:
        return "is not an address"
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_is_valid:
        return "must be an address that starts with http:// or https://"
    if parts.username or parts.password:
        return "holds a user name or password; keys belong into environment variables"
    if parts.fragment or (parts.query and not query):
        return "must not hold a query or a fragment"
    return None


def _without_secrets(address: str) -> str:
    """Return an address without user, query and fragment, which may hold secrets."""
    parts = urlsplit(address)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}".rstrip("/")


def _query_secrets(address: str) -> list[str]:
    """Return what an address's query names as a key; its other values (a version, a model) are no secrets."""
    try:
        query = parse_qsl(urlsplit(address.strip()).query)
    except ValueError:
        return []
    return [value for name, value in query if _SECRET_NAME.search(name)]


def _unfit(variable: str) -> str:
    """Say what is wrong with a variable's value, without the value: the HTTP client's own message would show it."""
    return (
        f"the environment variable {variable} holds a character that no HTTP header can hold: a line break, another "
        "control character, or one beyond ASCII. Copy the value anew."
    )


def _nearest(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f'. Did you mean "{close[0]}"?' if close else "."


def _wrong(where: str, message: str) -> SuiteError:
    return SuiteError([Problem(where, message)])
