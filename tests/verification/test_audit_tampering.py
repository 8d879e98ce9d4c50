"""An audit log that was tampered with: what its chain, its key and an anchor detect, and what they cannot."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from audit_logs import KEY, SETTINGS, hash_of, written
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.errors import AuditError
from pipeline.verification.audit import AuditLog, check_log, read_key


def holds(path: Path, key: bytes | None = None, anchor: str | None = None) -> bool:
    """True if the check finds no fault."""
    try:
        return check_log(path, key=key, anchor=anchor).torn == 0
    except AuditError as error:
        assert str(path) in str(error)
        return False


def test_any_flipped_bit_is_detected(tmp_path):
    sound = b"".join(written(tmp_path / "sound", 1, KEY))
    path = tmp_path / "log"
    for place in range(0, len(sound), 3):
        path.write_bytes(sound[:place] + bytes([sound[place] ^ 1 << place % 8]) + sound[place + 1 :])
        assert not holds(path, KEY), place


@settings(SETTINGS, max_examples=150)
@given(st.data())
def test_any_edit_before_the_end_is_detected(tmp_path, data):
    path = tmp_path / "log"
    if not path.with_name("sound").exists():
        written(path.with_name("sound"), 5)
    sound = path.with_name("sound").read_bytes()
    lines = sound.splitlines(keepends=True)
    pieces = data.draw(st.lists(st.sampled_from(lines) | st.binary(max_size=60), max_size=2))
    whole = lines if data.draw(st.booleans()) else [sound[n : n + 1] for n in range(len(sound))]
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, len(whole)))
    edited = b"".join([*whole[:start], *pieces, *whole[end:]])
    path.write_bytes(edited)
    if edited == sound:
        assert holds(path)
    elif edited and sound.startswith(edited) and edited.endswith(b"\n"):  # detected by an anchor only
        assert holds(path)
        assert not holds(path, anchor=json.loads(lines[-1])["hash"])
    else:
        assert not holds(path)


@pytest.mark.parametrize(
    ("edit", "line", "words"),
    [
        (lambda lines: [*lines[:2], lines[2].replace(b"accepted", b"rejected"), *lines[3:]], 3, "edited"),
        (lambda lines: [*lines[:2], *lines[3:]], 3, "its number is 4: lines were removed"),
        (lambda lines: [*lines[:2], lines[3], lines[2], *lines[4:]], 3, "removed, inserted or moved"),
        (lambda lines: [*lines[:2], lines[1], *lines[2:]], 3, "its number is 2"),
        (lambda lines: lines[1:], 1, "its number is 2"),
        (lambda lines: [*lines[:3], b"\n", *lines[3:]], 4, "not a line of an audit log"),
        (lambda lines: [*lines[:3], b"x" * 300_000 + b"\n", *lines[3:]], 4, "longer than a line"),
        (lambda lines: [lines[0].replace(b'"version":1', b'"version":2'), *lines[1:]], 1, "version 2"),
    ],
)
def test_the_first_invalid_line_is_named(tmp_path, edit, line, words):
    path = tmp_path / "log"
    path.write_bytes(b"".join(edit(written(path))))
    with pytest.raises(AuditError, match=rf"log, line {line}: .*{words}"):
        check_log(path)


def forged(lines: list[bytes], number: int, key: bytes | None) -> bytes:
    """Change "accepted" in line ``number`` to "rejected" and recompute every hash from there on."""
    previous, again = json.loads(lines[number - 1])["previous"], lines[: number - 1]
    for line in lines[number - 1 :]:
        text = line.rpartition(b',"previous"')[0].replace(b"accepted", b"rejected")
        text += f',"previous":"{previous}"'.encode()
        previous = hash_of(text, key)
        again.append(text + f',"hash":"{previous}"}}\n'.encode())
    return b"".join(again)


def test_a_line_of_another_log_or_forged_with_its_hash_is_detected_by_the_next(tmp_path):
    path = tmp_path / "log"
    lines, others = written(path), written(tmp_path / "other")  # of the same events
    for line in (others[2], forged(lines, 3, None).splitlines(keepends=True)[2]):
        path.write_bytes(b"".join([*lines[:2], line, *lines[3:]]))
        with pytest.raises(AuditError, match=r"line [34]: it does not follow the line before it"):
            check_log(path)


@pytest.mark.parametrize(
    "first",
    [
        {"n": 1, "event": "verify"},
        {"n": 2, "event": "open"},
        {"n": True, "event": "open"},
        {"n": 1, "event": "open", '"event': "open"},
    ],
)
def test_a_first_line_that_is_none_is_detected_though_its_hash_is_right(tmp_path, first):
    opening = json.loads(written(tmp_path / "log")[0])
    del opening["hash"]
    text = json.dumps(opening | first, separators=(",", ":")).replace('\\"', "").encode()[:-1]
    (tmp_path / "log").write_bytes(text + f',"hash":"{hash_of(text, None)}"}}\n'.encode())
    with pytest.raises(AuditError, match="line 1: "):
        check_log(tmp_path / "log")


def test_a_rewritten_log_is_detected_by_its_key_or_an_anchor_only(tmp_path):
    path = tmp_path / "log"
    lines = written(path)
    anchor = check_log(path).last_hash
    path.write_bytes(forged(lines, 3, None))
    assert holds(path)  # as documented, an unkeyed chain cannot detect it
    with pytest.raises(AuditError, match="none of its 5 lines has the hash"):
        check_log(path, anchor=anchor)
    keyed = tmp_path / "keyed"
    lines = written(keyed, key=KEY)
    for guess in (None, b"another key of 16"):
        keyed.write_bytes(forged(lines, 3, guess))
        with pytest.raises(AuditError, match=r"line 3: .*another key"):
            check_log(keyed, key=KEY)
    # Nor does it pass for a log that never had a key.
    keyed.write_bytes(forged([lines[0].replace(b'"keyed":true', b'"keyed":false'), *lines[1:]], 1, None))
    with pytest.raises(AuditError, match="line 1: it opens a log without a key, but one was given"):
        check_log(keyed, key=KEY)


def test_lines_removed_at_the_end_are_detected_by_an_anchor_only(tmp_path, key):
    path = tmp_path / "log"
    lines = written(path, 4, key)
    last = check_log(path, key=key).last_hash
    path.write_bytes(b"".join(lines[:3]))
    AuditLog(path, key=key).append("verify", {"claim": "bert"})
    assert not holds(path, key, anchor=last)
    assert holds(path, key, anchor=json.loads(lines[2])["hash"])


def test_the_key_is_required_and_must_be_the_same(tmp_path):
    path = tmp_path / "log"
    written(path, 2, KEY)
    with pytest.raises(AuditError, match="line 1: it opens a log with a key, but none was given"):
        check_log(path)
    with pytest.raises(AuditError, match=r"line 1: .*another key"):
        check_log(path, key=b"another key of 16")
    before = path.read_bytes()
    for wrong in (None, b"another key of 16"):
        with pytest.raises(AuditError, match="its last line is not valid"):
            AuditLog(path, key=wrong).append("verify", {})
    assert path.read_bytes() == before


def test_a_key_is_read_from_a_file_or_the_environment(tmp_path, monkeypatch):
    monkeypatch.delenv("VOICECLAIM_AUDIT_KEY", raising=False)
    assert read_key() is None
    (tmp_path / "key").write_bytes(KEY + b"\r\n")
    assert read_key(tmp_path / "key") == KEY
    monkeypatch.setenv("VOICECLAIM_AUDIT_KEY", "short")
    with pytest.raises(AuditError, match="VOICECLAIM_AUDIT_KEY: a key must have at least 16 bytes, got 5"):
        read_key()
