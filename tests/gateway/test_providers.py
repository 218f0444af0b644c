"""Providers and endpoints of pyproject.toml."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_evalgrader.errors import CallError, SuiteError
from pytest_evalgrader.gateway.providers import Providers, join_base_url, load_providers, scrub

KEY = "sk-a-secret-of-the-tests"


def load(tmp_path: Path, text: str = "", **env: str) -> Providers:
    path = tmp_path / "pyproject.toml"
    path.write_text(text, "utf-8")
    return load_providers(path, env)


def test_openai_is_there_by_default() -> None:
    providers = load_providers(None, {"OPENAI_API_KEY": KEY})
    provider, name = providers.resolve("openai:gpt-4.1-mini")
    assert (provider.base_url, provider.api, name) == ("https://api.openai.com/v1", "responses", "gpt-4.1-mini")
    assert providers.key(provider) == KEY
    assert providers.resolve("gpt-4.1-mini") == (provider, "gpt-4.1-mini")
    assert providers.canonical("gpt-4.1-mini") == "openai:gpt-4.1-mini"


@pytest.mark.parametrize(
    ("address", "joined"),
    [
        ("http://h:1", "http://h:1/v1"),
        ("http://h:1/", "http://h:1/v1"),
        ("http://h:1/v1", "http://h:1/v1"),
        ("http://h:1/v1/", "http://h:1/v1"),
        ("http://h:1/v1//", "http://h:1/v1"),
        ("http://h/api/v1/chat/completions", "http://h/api/v1"),
        ("http://h/v1/responses/", "http://h/v1"),
        ("http://h/chat/completions", "http://h"),
        ("http://h/openai", "http://h/openai"),
    ],
)
def test_base_urls_are_joined_right(address: str, joined: str) -> None:
    assert join_base_url(address) == joined


def test_a_provider_needs_no_key_and_gets_none_of_another(tmp_path: Path) -> None:
    providers = load(
        tmp_path, '[tool.evalgrader.providers.local]\nbase_url = "http://127.0.0.1:1"\n', OPENAI_API_KEY=KEY
    )
    provider, name = providers.resolve("local:a:b")
    assert providers.key(provider) is None
    assert name == "a:b"


def test_a_missing_key_names_its_variable(tmp_path: Path) -> None:
    providers = load(
        tmp_path, '[tool.evalgrader.providers.p]\nbase_url = "http://h/v1"\napi_key_env = "P_KEY"\n', P_KEY="  "
    )
    with pytest.raises(CallError, match="P_KEY is not set") as caught:
        providers.key(providers.resolve("p:m")[0])
    assert caught.value.type_name == "MissingKey"
    assert "OPENAI_API_KEY" in str(providers.check("m", may_call=True)[0])
    assert providers.check("m", may_call=False) == []


def test_an_unknown_provider_lists_the_known_and_the_lines_to_add(tmp_path: Path) -> None:
    providers = load(tmp_path, '[tool.evalgrader.providers.local]\nbase_url = "http://h"\n')
    with pytest.raises(SuiteError) as caught:
        providers.resolve("loacl:m")
    text = str(caught.value)
    assert "known: openai, local" in text
    assert 'Did you mean "local"?' in text
    assert "[tool.evalgrader.providers.loacl]" in text
    with pytest.raises(SuiteError, match=r"openai:llama3\.2:1b"):
        providers.resolve("llama3.2:1b")


@pytest.mark.parametrize("model", ["", "openai:", "openai: ", "recorded:answer", "python:app:f"])
def test_a_name_without_a_model_is_refused(model: str) -> None:
    with pytest.raises(SuiteError):
        load_providers(None, {}).resolve(model)


def test_everything_wrong_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(SuiteError) as caught:
        load(
            tmp_path,
            """
            [tool.evalgrader]
            provider = 1
            [tool.evalgrader.providers.a]
            base_ulr = "http://h"
            [tool.evalgrader.providers.b]
            base_url = "http://h"
            api = "chat"
            timeout_seconds = -1
            max_retries = true
            allow_tools = "yes"
            api_key_env = "sk-this-is-a-key"
            [tool.evalgrader.providers.recorded]
            base_url = "http://h"
            [tool.evalgrader.providers.c]
            base_url = "http://user:pass@h"
            [tool.evalgrader.providers.d]
            base_url = "h:80"
            [tool.evalgrader.endpoints.e]
            headers_env = { Authorization = "Bearer x y" }
            [tool.evalgrader.endpoints.g]
            url_env = "http://h"
            [tool.evalgrader.endpoints.f]
            url = "http://h"
            headers_env = { Authorization = "Bearer x y" }
            """,
        )
    text = str(caught.value)
    for part in (
        'provider: unknown key. Did you mean "providers"?',
        'providers.a.base_ulr: unknown key. Did you mean "base_url"?',
        "providers.a: base_url is missing",
        "providers.b.api: must be one of",
        "providers.b.timeout_seconds: must be seconds above 0, not -1",
        "providers.b.max_retries: must be",
        "providers.b.allow_tools: must be true or false",
        "providers.b.api_key_env: must be the name of an environment variable",
        "providers.recorded: recorded: models are answered by this program",
        "providers.c.base_url: holds a user name or password",
        "providers.d.base_url: must be an address that starts with",
        "endpoints.e: url is missing",
        "endpoints.f.headers_env.Authorization: must be the name",
        "endpoints.g.url_env: must be the name",
    ):
        assert part in text
    assert "sk-this-is-a-key" not in text
    assert "pass@" not in text
    assert "Bearer x y" not in text


def test_a_broken_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match=r"pyproject\.toml: cannot be read"):
        load(tmp_path, "[tool")
    with pytest.raises(SuiteError, match="OPENAI_BASE_URL: must be an address"):
        load(tmp_path, "", OPENAI_BASE_URL="nowhere")


def test_endpoints(tmp_path: Path) -> None:
    providers = load(
        tmp_path,
        '[tool.evalgrader.endpoints.rewards]\nurl = "http://h/r/"\nheaders_env = { "X-Key" = "R_KEY" }\n',
        R_KEY="Bearer abcdefgh123",
    )
    named = providers.endpoint("rewards")
    assert (named.label, named.join("score"), named.join("/info")) == ("rewards", "http://h/r/score", "http://h/r/info")
    assert providers.headers(named) == {"X-Key": "Bearer abcdefgh123"}
    bare = providers.endpoint("http://127.0.0.1:9/x?token=abc")
    assert bare.label == "http://127.0.0.1:9/x"
    assert bare.join("score") == "http://127.0.0.1:9/x/score?token=abc"
    assert providers.headers(bare) == {}
    with pytest.raises(SuiteError, match=r"endpoints\.reward\]") as caught:
        providers.endpoint("reward")
    assert 'Did you mean "rewards"?' in str(caught.value)
    with pytest.raises(SuiteError) as caught:
        providers.endpoint("http://user:pass@h")
    assert "pass" not in str(caught.value).replace("password", "")
    assert scrub("x abcdefgh123 y", providers.secrets()) == "x *** y"


def test_an_endpoint_may_be_found_through_a_variable(tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text(
        '[tool.evalgrader.endpoints.a]\nurl_env = "A_URL"\n'
        '[tool.evalgrader.endpoints.b]\nurl = "http://h"\nurl_env = "B_URL"\n',
        "utf-8",
    )
    env: dict[str, str] = {}
    providers = load_providers(path, env)
    assert providers.check_endpoint("a", may_call=True) == []
    a, b = providers.endpoint("a"), providers.endpoint("b")
    with pytest.raises(CallError, match=r"A_URL, which holds its address, is not set.*fixture"):
        providers.located(a)
    assert providers.located(b).join("score") == "http://h/score"
    env |= {"A_URL": "http://127.0.0.1:5/r?token=t", "B_URL": " http://127.0.0.1:6/ "}
    assert providers.located(a).join("score") == "http://127.0.0.1:5/r/score?token=t"
    assert providers.located(b).join("score") == "http://127.0.0.1:6/score"
    assert providers.located(a).label == "a"
    env["A_URL"] = "127.0.0.1:5"
    with pytest.raises(CallError, match="A_URL must be an address"):
        providers.located(a)


def test_a_provider_may_be_found_through_a_variable(tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text(
        '[tool.evalgrader.providers.a]\nbase_url_env = "A_URL"\napi_key_env = "A_KEY"\n'
        '[tool.evalgrader.providers.b]\nbase_url = "http://h"\nbase_url_env = "B_URL"\n',
        "utf-8",
    )
    env = {"A_KEY": "k"}
    providers = load_providers(path, env)
    assert providers.check("a:m", may_call=True) == []
    (a, _), (b, _) = providers.resolve("a:m"), providers.resolve("b:m")
    with pytest.raises(CallError, match=r"provider a: the environment variable A_URL.*is not set.*add base_url"):
        providers.base_url(a)
    assert providers.base_url(b) == "http://h/v1"
    env |= {"A_URL": "http://127.0.0.1:5", "B_URL": "http://127.0.0.1:6/api/v1/chat/completions"}
    assert (providers.base_url(a), providers.base_url(b)) == ("http://127.0.0.1:5/v1", "http://127.0.0.1:6/api/v1")
    env["A_URL"] = "http://127.0.0.1:5?x=1"
    with pytest.raises(CallError, match="A_URL must not hold a query"):
        providers.base_url(a)
    del env["A_KEY"]
    assert "(A_URL) needs its key there" in str(providers.check("a:m", may_call=True)[0])


def test_a_header_that_is_not_set_is_named(tmp_path: Path) -> None:
    providers = load(tmp_path, '[tool.evalgrader.endpoints.r]\nurl = "http://h"\nheaders_env = { A = "R_KEY" }\n')
    assert "R_KEY" in str(providers.check_endpoint("r", may_call=True)[0])
    assert providers.check_endpoint("r", may_call=False) == []


def test_keys_are_in_no_repr(tmp_path: Path) -> None:
    providers = load(tmp_path, "", OPENAI_API_KEY=KEY)
    assert KEY not in repr(providers)
    assert KEY not in repr(providers.resolve("m"))
    assert scrub(f"a {KEY} b", providers.secrets()) == "a *** b"


def test_placeholders_are_no_secrets(tmp_path: Path) -> None:
    providers = load(tmp_path, "", OPENAI_API_KEY="x")
    assert scrub("x marks", providers.secrets()) == "x marks"


@pytest.mark.parametrize("scheme", ["Bearer", "ApiKey", "X-Token"])
def test_a_credential_is_a_secret_also_without_its_scheme(tmp_path: Path, scheme: str) -> None:
    text = '[tool.evalgrader.endpoints.r]\nurl = "http://h"\nheaders_env = { A = "R_KEY" }\n'
    providers = load(tmp_path, text, R_KEY=f"{scheme} {KEY}")
    assert scrub(f"a {KEY} b", providers.secrets()) == "a *** b"


def test_a_token_in_an_address_is_a_secret_and_a_version_is_none(tmp_path: Path) -> None:
    text = '[tool.evalgrader.endpoints.r]\nurl = "http://h"\nurl_env = "R_URL"\n'
    providers = load(tmp_path, text, R_URL="http://h/x?api_key=s%2Fecret-1234&version=2024-10-01")
    said = "GET /x?api_key=s%2Fecret-1234&version=2024-10-01 (s/ecret-1234)"
    assert scrub(said, providers.secrets()) == "GET /x?api_key=***&version=2024-10-01 (***)"
    assert load(tmp_path, text, R_URL="http://[").secrets() == ()
