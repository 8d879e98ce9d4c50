"""Tokens and their scopes, and addresses that need them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import ConfigError, ServiceError
from pipeline.server.messages import Hello, read_hello
from pipeline.server.run import listen, serve, url_of
from pipeline.server.security import SCOPES, VARIABLE, is_loopback, parse_tokens, read_tokens, scopes_of
from pipeline.server.settings import Settings

TOKEN = st.text("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~+/", min_size=16, max_size=64)


@given(st.dictionaries(TOKEN, st.sampled_from(["enroll", "verify", "admin", "enroll,verify"]), min_size=1, max_size=5))
def test_a_token_has_the_scopes_of_its_line_and_others_have_none(entries):
    tokens = parse_tokens("\n".join(f"{scope} {token}" for token, scope in entries.items()), "here")
    for token, scope in entries.items():
        expected = SCOPES if scope == "admin" else set(scope.split(","))
        assert scopes_of(tokens, token) == expected
        assert scopes_of(tokens, f"{token}x") == scopes_of(tokens, token[:-1]) == frozenset()
        assert token not in repr(tokens)
    assert scopes_of(tokens, "") == scopes_of(tokens, "\ud800") == frozenset()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "at least one line"),
        ("# nothing\n\n", "at least one line"),
        ("s3cret-s3cret-s3cret", "scope is one of"),
        ("root aaaaaaaaaaaaaaaaaaaa", "scope is one of"),
        ("verify aaaaaaaaaaaaaaa", "at least 16"),
        ("verify with blanks in the token", "at least 16"),
        ("verify aaaaaaaaaaaaaaaaaaaa\nenroll aaaaaaaaaaaaaaaaaaaa", "entry 2: the token is given twice"),
    ],
)
def test_tokens_that_are_none_are_refused_and_not_shown(text, words):
    with pytest.raises(ConfigError, match=words) as refused:
        parse_tokens(text, "tokens.txt")
    assert "s3cret" not in str(refused.value)
    assert "aaaa" not in str(refused.value)


def test_tokens_come_from_a_file_or_the_environment(tmp_path, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    assert read_tokens() is None
    monkeypatch.setenv(VARIABLE, "verify aaaaaaaaaaaaaaaaaaaa;enroll bbbbbbbbbbbbbbbbbbbb")
    assert scopes_of(read_tokens(), "b" * 20) == {"enroll"}
    (tmp_path / "tokens.txt").write_text("  # hers\nverify   cccccccccccccccccccc==\r\n")
    assert scopes_of(read_tokens(tmp_path / "tokens.txt"), "c" * 20 + "==") == {"verify"}
    with pytest.raises(ConfigError, match="cannot be read"):
        read_tokens(tmp_path / "missing.txt")
    (tmp_path / "tokens.txt").write_bytes(b"verify \xff")
    with pytest.raises(ConfigError, match="cannot be read: it is not text"):
        read_tokens(tmp_path / "tokens.txt")


def test_a_hello_shows_its_token_to_no_log():
    assert "s3cret" not in repr(read_hello('{"rate": 8000, "format": "f32le", "token": "s3cret"}', Hello))


def test_only_addresses_of_this_machine_go_without_tokens():
    assert all(map(is_loopback, ("127.0.0.1", "127.8.8.8", "::1", "localhost")))
    assert not any(map(is_loopback, ("192.0.2.1", "::", "localhost.example", "127.0.0.1.example", "")))


def test_an_address_beyond_this_machine_without_tokens_or_already_taken_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"192\.0\.2\.1: .*needs tokens"):
        serve(Settings(tmp_path / "store"), "192.0.2.1", 0, threads=1, started=print)
    with listen("127.0.0.1", 0, 1.0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ServiceError, match=f"cannot listen on 127.0.0.1 port {port}.*--port 0"):
            listen("127.0.0.1", port, 1.0)
    assert url_of("::1", 8000) == "http://[::1]:8000/"
