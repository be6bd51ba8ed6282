"""Signatures: what they cover, whom they name, and every way to break one."""

import base64
import json
import shutil

import pytest
from cryptography.hazmat.primitives import serialization as s
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import subspacedp as sdp
from subspacedp.errors import ReleaseError
from subspacedp.release import read_private_key, sign_folder, verify_folder
from subspacedp.release.signature import check_digests, check_signature, write_digests


def private_pem(key, password=None):
    hidden = s.BestAvailableEncryption(password) if password else s.NoEncryption()
    return key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, hidden)


def public_pem(key):
    return key.public_key().public_bytes(s.Encoding.PEM, s.PublicFormat.SubjectPublicKeyInfo)


@pytest.fixture
def key():
    return Ed25519PrivateKey.generate()


@pytest.fixture
def public(tmp_path, key):
    path = tmp_path / "public.pem"
    path.write_bytes(public_pem(key))
    return path


@pytest.fixture
def folder(tmp_path, key):
    made = tmp_path / "signed"
    (made / "inner").mkdir(parents=True)
    (made / "a.csv").write_text("a\n1\n")
    (made / "inner" / "b.csv").write_text("b\n2\n")
    (made / "inner" / "signature.json").write_text("{}")
    (made / ".hidden").write_text("h")
    (made / "größe.txt").write_text("ü")
    sign_folder(made, key)
    return made


def test_a_signature_holds(folder, public):
    check = check_signature(folder, public)
    assert check.ok, check.detail
    assert "5 files, by the key given" in check.detail
    anyone = check_signature(folder)
    assert anyone.ok
    assert "to be compared with its publisher's" in anyone.detail


def test_it_can_be_checked_by_its_own_description(folder, key):
    """A reader without this package: names and digests as JSON, keys sorted, no spaces."""
    data = json.loads((folder / "signature.json").read_text("utf-8"))
    message = json.dumps(data["files"], sort_keys=True, separators=(",", ":")).encode()
    assert "keys sorted, no spaces" in data["signs"]
    key.public_key().verify(base64.b64decode(data["signature"]), message)
    raw = key.public_key().public_bytes(s.Encoding.Raw, s.PublicFormat.Raw)
    assert base64.b64decode(data["public_key"]) == raw
    assert set(data["files"]) == {
        "a.csv",
        "inner/b.csv",
        "inner/signature.json",
        ".hidden",
        "größe.txt",
    }
    private = key.private_bytes(s.Encoding.Raw, s.PrivateFormat.Raw, s.NoEncryption())
    assert base64.b64encode(private).decode() not in (folder / "signature.json").read_text("utf-8")


@pytest.mark.parametrize(
    "alter",
    [
        lambda f: (f / "a.csv").write_text("a\n2\n"),
        lambda f: (f / "inner" / "b.csv").write_text("b\n3\n"),
        lambda f: (f / "inner" / "signature.json").write_text("{ }"),
        lambda f: (f / ".hidden").unlink(),
        lambda f: (f / "a.csv").rename(f / "c.csv"),
        lambda f: (f / "extra").write_text(""),
        lambda f: (f / "inner" / ".extra").write_text(""),
        lambda f: (f / "new").mkdir() or (f / "new" / "file").write_text(""),
        lambda f: (f / "link").symlink_to(f / "a.csv"),
        pytest.param(
            lambda f: (f / "link").symlink_to(f.parent),
        ),
    ],
)
def test_every_change_of_the_files_breaks_it(folder, public, alter):
    alter(folder)
    assert not check_signature(folder).ok
    assert not check_signature(folder, public).ok


def change(data, key, value):
    return {**data, key: value}


@pytest.mark.parametrize(
    "alter",
    [
        lambda d: change(d, "signature", base64.b64encode(bytes(64)).decode()),
        lambda d: change(d, "signature", d["signature"][:-4]),
        lambda d: change(d, "signature", "§"),
        lambda d: change(d, "signature", 3),
        lambda d: change(d, "public_key", base64.b64encode(bytes(32)).decode()),
        lambda d: change(d, "public_key", "AAAA"),
        lambda d: change(d, "files", {}),
        lambda d: change(d, "files", [1]),
        lambda d: change(d, "files", {**d["files"], "a.csv": "0" * 64}),
        lambda d: {k: v for k, v in d.items() if k != "signature"},
        lambda d: [d],
        lambda d: None,
    ],
)
def test_every_change_of_the_signature_breaks_it(folder, public, alter):
    path = folder / "signature.json"
    path.write_text(json.dumps(alter(json.loads(path.read_text("utf-8")))), "utf-8")
    for check in (check_signature(folder), check_signature(folder, public)):
        assert not check.ok
        assert "\n" not in check.detail


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[[[["])
def test_a_signature_that_is_no_json(folder, content):
    (folder / "signature.json").write_bytes(content)
    assert not check_signature(folder).ok


def test_a_new_signature_by_another_key_is_only_noticed_with_the_publishers_key(folder, public):
    (folder / "a.csv").write_text("forged")
    sign_folder(folder, Ed25519PrivateKey.generate())
    assert check_signature(folder).ok
    check = check_signature(folder, public)
    assert not check.ok
    assert "another key" in check.detail


def test_a_missing_signature_fails_only_where_one_is_asked_for(tmp_path, public, key):
    domain = sdp.Domain([sdp.Axis("a", ["x", "y"])])
    release = sdp.design(domain, sdp.hold(), sdp.PureDP(1.0)).release(sdp.Table([3, 4], domain))
    release.save(tmp_path / "r")
    assert verify_folder(tmp_path / "r").ok
    assert not verify_folder(tmp_path / "r", public_key=public).ok
    sign_folder(tmp_path / "r", key)
    assert verify_folder(tmp_path / "r", public_key=public).ok
    assert verify_folder(tmp_path / "r").ok
    (tmp_path / "r" / "extra.csv").write_text("")
    assert not verify_folder(tmp_path / "r").ok


@pytest.mark.parametrize(
    ("alter", "sentence"),
    [
        (lambda f: (f / "a.csv").write_text("a\n2\n"), "`a.csv` was altered"),
        (lambda f: (f / "inner" / "b.csv").unlink(), "`inner/b.csv` is missing"),
        (lambda f: shutil.rmtree(f / "inner"), "`inner/b.csv` is missing"),
        (lambda f: (f / "new").write_text(""), "`new` is not in digests.json"),
        (lambda f: (f / "inner" / "digests.json").write_text(""), "`inner/digests.json` is not in"),
        (lambda f: (f / "link").symlink_to(f.parent), "`link` is not in digests.json"),
        (lambda f: (f / "digests.json").write_text("{"), "digests.json cannot be read"),
        (lambda f: (f / "digests.json").write_text('{"files": [1]}'), "cannot be read"),
        (lambda f: (f / "digests.json").write_text('{"files": {}}'), "is not in digests.json"),
    ],
)
def test_digests_find_every_change_of_the_files(folder, alter, sentence):
    (folder / "signature.json").unlink()
    write_digests(folder)
    check = check_digests(folder)
    assert check.ok, check.detail
    assert "5 files" in check.detail
    alter(folder)
    check = check_digests(folder)
    assert not check.ok
    assert sentence in check.detail


def test_a_signature_that_is_taken_away_is_missed_where_digests_name_it(folder, key):
    write_digests(folder)  # after the signature
    assert check_digests(folder).ok
    (folder / "signature.json").unlink()
    assert "`signature.json` is missing" in check_digests(folder).detail


def test_digests_may_be_signed_afterwards(folder, key):
    (folder / "signature.json").unlink()
    write_digests(folder)
    sign_folder(folder, key)
    assert check_digests(folder).ok
    assert check_signature(folder).ok
    (folder / "digests.json").unlink()
    assert not check_signature(folder).ok


def test_a_saved_release_has_digests_and_fails_without(tmp_path):
    domain = sdp.Domain([sdp.Axis("a", ["x", "y"])])
    release = sdp.design(domain, sdp.hold(), sdp.PureDP(1.0)).release(sdp.Table([3, 4], domain))
    release.save(tmp_path / "r")
    result = verify_folder(tmp_path / "r")
    assert result.ok
    assert "digests" in {check.name for check in result.checks}
    assert "There is no signature.json" in " ".join(result.notes)
    (tmp_path / "r" / "digests.json").unlink()
    (failed,) = [check for check in verify_folder(tmp_path / "r").checks if not check.ok]
    assert "listed in no digests.json and no signature.json" in failed.detail


def test_keys_that_are_read(tmp_path, key, folder):
    path = tmp_path / "key.pem"
    path.write_bytes(private_pem(key))
    raw = (s.Encoding.Raw, s.PrivateFormat.Raw, s.NoEncryption())
    assert read_private_key(path).private_bytes(*raw) == key.private_bytes(*raw)
    assert check_signature(folder, path).ok  # a private key names its public half


def other_key(_key):
    return generate_private_key(SECP256R1())


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (lambda key: private_pem(other_key(key)), "is not an Ed25519 key"),
        (lambda key: private_pem(key, b"word"), "has a passphrase"),
        (lambda key: public_pem(key), "is not a private key"),
        (lambda _: b"", "is not a private key"),
        (lambda _: b"\xff\x00", "is not a private key"),
        (lambda key: private_pem(key)[:60], "is not a private key"),
    ],
)
def test_keys_that_cannot_sign(tmp_path, key, content, sentence):
    path = tmp_path / "key.pem"
    path.write_bytes(content(key))
    with pytest.raises(ReleaseError, match=sentence) as caught:
        read_private_key(path)
    assert "word" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (lambda key: public_pem(other_key(key)), "is not an Ed25519 key"),
        (lambda key: private_pem(other_key(key)), "is not an Ed25519 key"),
        (lambda key: private_pem(key, b"word"), "is not a public key"),
        (lambda _: b"", "is not a public key"),
    ],
)
def test_keys_that_cannot_check(tmp_path, folder, key, content, sentence):
    path = tmp_path / "key.pem"
    path.write_bytes(content(key))
    with pytest.raises(ReleaseError, match=sentence):
        check_signature(folder, path)


def test_keys_that_are_not_there(tmp_path, folder):
    with pytest.raises(ReleaseError, match=r"no key `.*none.pem`; `subspacedp key new .*none.pem`"):
        read_private_key(tmp_path / "none.pem")
    with pytest.raises(ReleaseError, match="Cannot read the key"):
        check_signature(folder, tmp_path)
