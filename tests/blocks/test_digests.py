"""The digest of a large table: the same for any parts, and another for any other bytes."""

import hashlib
import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.blocks.tables import COUNTS, designed, digest_of

import subspacedp as sdp
from subspacedp.blocks import digests, memory
from subspacedp.blocks.digests import CHUNK, Part, TreeHash, file_digest
from subspacedp.release import verify_folder, write_digests
from subspacedp.release.signature import DIGESTS, check_digests, sign_folder

CONTENT = np.random.default_rng(8).bytes(3 * CHUNK + 5)
SIZES = [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, len(CONTENT)]


def tree(content):
    return TreeHash(content).hexdigest()


# --------------------------------------------------------------------------------- the definition


@pytest.mark.parametrize("size", SIZES)
def test_it_is_what_its_definition_says(tmp_path, size):
    (tmp_path / "file").write_bytes(CONTENT[:size])
    wanted = digest_of(CONTENT[:size], tree=True)
    assert tree(CONTENT[:size]) == wanted
    assert file_digest(tmp_path / "file", tree=True) == wanted
    assert file_digest(tmp_path / "file") == digest_of(CONTENT[:size], tree=False)


@given(cuts=st.lists(st.integers(0, len(CONTENT)) | st.sampled_from(SIZES), max_size=8))
def test_parts_made_apart_give_the_same(cuts):
    """Whatever the parts are: shorter than a chunk, empty, or several chunks and a half."""
    ends = [0, *sorted(cuts), len(CONTENT)]
    parts = [Part.of(CONTENT[lo:hi], lo) for lo, hi in itertools.pairwise(ends)]
    digest = TreeHash()
    for part in parts:
        digest.join(part)
    assert digest.hexdigest() == digest_of(CONTENT, tree=True)


def test_what_is_sent_of_a_part_is_small():
    part = Part.of(CONTENT[7:], 7)
    assert len(part.head) + len(part.tail) < 2 * CHUNK
    assert len(part.leaves) == 2 * 32


@pytest.mark.parametrize("start", [0, 9, CHUNK + 1])
def test_a_part_in_another_place_is_refused(start):
    digest = TreeHash(CONTENT[:CHUNK])
    with pytest.raises(ValueError, match="begins at byte"):
        digest.join(Part.of(CONTENT[:10], start))


# ------------------------------------------------------------------------------- other bytes

CHANGES = {
    **{
        f"a bit of byte {at}": lambda c, at=at: c[:at] + bytes([c[at] ^ 1]) + c[at + 1 :]
        for at in (0, 127, CHUNK - 1, CHUNK, 2 * CHUNK + 9, 3 * CHUNK, 3 * CHUNK + 4)
    },
    "two chunks exchanged": lambda c: c[CHUNK : 2 * CHUNK] + c[:CHUNK] + c[2 * CHUNK :],
    "a chunk twice": lambda c: c[:CHUNK] + c,
    "a chunk lost": lambda c: c[CHUNK:],
    "the last byte lost": lambda c: c[:-1],
    "the last chunk lost": lambda c: c[: (len(c) - 1) // CHUNK * CHUNK],
    "a zero appended": lambda c: c + b"\0",
    "a chunk of zeros appended": lambda c: c + bytes(CHUNK),
}


@pytest.mark.parametrize("change", CHANGES)
def test_other_bytes_have_another_digest(change):
    assert tree(CHANGES[change](CONTENT)) != tree(CONTENT)


def forged(content):
    """A short file that a tree without prefixes takes for `content`: the list of its leaves."""
    chunks = (content[at : at + CHUNK] for at in range(0, len(content), CHUNK))
    return b"".join(hashlib.sha256(digests.LEAF + chunk).digest() for chunk in chunks)


def test_a_list_of_leaves_is_no_chunk():
    """Neither the list nor the list with its prefix has the digest of the file, as leaf or root."""
    root = bytes.fromhex(tree(CONTENT).removeprefix(digests.TREE))
    for short in (forged(CONTENT), digests.ROOT + forged(CONTENT)):
        assert digests._leaf(short) != root
        assert tree(short) != tree(CONTENT)


def test_a_twin_without_prefixes_takes_a_list_for_a_chunk(monkeypatch):
    """Why leaves and roots begin with other bytes: here an inner node is a leaf."""
    monkeypatch.setattr(digests, "LEAF", b"")
    monkeypatch.setattr(digests, "ROOT", b"")
    root = bytes.fromhex(tree(CONTENT).removeprefix(digests.TREE))
    assert digests._leaf(forged(CONTENT)) == root


def test_a_twin_that_hashes_leaves_in_any_order_is_caught(monkeypatch):
    of = Part.of.__func__

    def sorted_leaves(cls, data, start):
        part = of(cls, data, start)
        each = [part.leaves[at : at + 32] for at in range(0, len(part.leaves), 32)]
        object.__setattr__(part, "leaves", b"".join(sorted(each)))
        return part

    monkeypatch.setattr(Part, "of", classmethod(sorted_leaves))
    swapped = CHANGES["two chunks exchanged"](CONTENT)
    assert tree(swapped) == tree(CONTENT)  # which the tests above would not let pass
    assert digest_of(swapped, tree=True) != digest_of(CONTENT, tree=True)


# ------------------------------------------------------------------------------------- folders


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """Three chunks in nine blocks, as `.npy`."""
    folder = tmp_path_factory.mktemp("released")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "LARGEST", 9_900)
        designed().release_to(folder / "r", COUNTS, seed=7, store="npy")
    return folder / "r"


def copied(folder, target):
    target.mkdir()
    for path in folder.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    return target


def failed(folder):
    return {check.name for check in verify_folder(folder).checks if not check.ok}


def test_folders_are_the_same_for_any_blocks(tmp_path, released, monkeypatch):
    """Certificate and digests are compared byte for byte."""
    for name, cells in (("one", COUNTS.size), ("many", 2_000)):
        monkeypatch.setattr(memory, "LARGEST", cells)
        monkeypatch.setattr(memory, "SMALLEST", cells)
        designed().release_to(tmp_path / name, COUNTS, seed=7, store="npy")
        for path in released.iterdir():
            assert (tmp_path / name / path.name).read_bytes() == path.read_bytes()


def test_the_file_and_the_values_have_one_digest(released):
    stated = json.loads((released / "certificate.json").read_text("utf-8"))["values"]["sha256"]
    content = (released / "values.npy").read_bytes()
    assert len(content) > 2 * CHUNK
    assert stated == digest_of(content, tree=True)
    listed = json.loads((released / DIGESTS).read_text("utf-8"))["files"]
    assert listed["values.npy"] == stated


IN_FILE = {
    **{
        f"a bit of byte {at}": lambda c, at=at: c[:at] + bytes([c[at] ^ 1]) + c[at + 1 :]
        for at in (128, CHUNK - 1, CHUNK, 2 * CHUNK, -1 % 649_568)
    },
    **{name: change for name, change in CHANGES.items() if not name.startswith("a bit")},
    "values of chunks exchanged": lambda c: (
        c[:128] + c[CHUNK : 2 * CHUNK] + c[CHUNK // 2 : CHUNK] + c[128 : CHUNK // 2]
        + c[2 * CHUNK :]
    ),
    "the header": lambda c: c.replace(b"(41, 30, 66)", b"(66, 30, 41)"),
    "the order of bytes": lambda c: c.replace(b"'<i8'", b"'>i8'"),
    "the list of leaves": lambda c: digests.ROOT + forged(c),  # whose SHA-256 is the root
}  # fmt: skip


@pytest.mark.parametrize("change", IN_FILE)
def test_altered_files_are_found(tmp_path, released, change):
    folder = copied(released, tmp_path / "r")
    content = (folder / "values.npy").read_bytes()
    altered = IN_FILE[change](content)
    assert len(content) == 649_568
    assert altered != content
    (folder / "values.npy").write_bytes(altered)
    assert {"digests", "files belong together", "values"} <= failed(folder)
    write_digests(folder)  # as whoever alters a file can
    assert {"files belong together", "values"} <= failed(folder)


@pytest.mark.parametrize(
    "alter",
    [
        lambda d: digests.TREE + "0" * 64,
        lambda d: d[:-1] + ("0" if d[-1] != "0" else "1"),
        lambda d: d.removeprefix(digests.TREE),  # a root for a plain digest
        lambda d: d.replace("tree-1", "tree-2"),
        lambda d: d.upper(),
    ],
)
@pytest.mark.parametrize("where", ["certificate.json", DIGESTS])
def test_altered_digests_are_found(tmp_path, released, alter, where):
    folder = copied(released, tmp_path / "r")
    text = (folder / where).read_text("utf-8")
    stated = json.loads((released / DIGESTS).read_text("utf-8"))["files"]["values.npy"]
    assert text.count(stated) == 1
    (folder / where).write_text(text.replace(stated, alter(stated)), "utf-8")
    assert "digests" in failed(folder)
    if where != DIGESTS:
        write_digests(folder)
        assert {"files belong together", "values"} <= failed(folder)


def test_a_signature_covers_the_tree(tmp_path, released):
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    folder = copied(released, tmp_path / "r")
    sign_folder(folder, Ed25519PrivateKey.generate(), sdp.load(folder).file_digests)
    assert verify_folder(folder).ok
    assert digests.TREE in (folder / "signature.json").read_text("utf-8")
    content = bytearray((folder / "values.npy").read_bytes())
    content[CHUNK + 3] ^= 1
    (folder / "values.npy").write_bytes(content)
    write_digests(folder)
    assert "signature" in failed(folder)


@pytest.mark.parametrize("plain", [False, True])
def test_verification_reads_a_large_file_once(tmp_path, released, monkeypatch, plain):
    """Values, list and signature have one digest; a plain one in the list is another."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from subspacedp.release import signature

    folder = copied(released, tmp_path / "r")
    write_digests(folder, {} if plain else sdp.load(folder).file_digests)
    sign_folder(folder, Ed25519PrivateKey.generate(), sdp.load(folder).file_digests)
    read, real = [], signature.file_digest
    monkeypatch.setattr(
        signature,
        "file_digest",
        lambda path, *, tree: read.append(path.name) or real(path, tree=tree),
    )
    assert verify_folder(folder).ok
    assert read.count("values.npy") == plain
    assert read.count("certificate.json") == 2
    content = bytearray((folder / "values.npy").read_bytes())
    content[-1] ^= 1
    (folder / "values.npy").write_bytes(content)
    assert {"digests", "signature", "values"} <= failed(folder)


def test_a_plain_digest_of_a_large_file_is_one_too(tmp_path, released):
    """Lists that are made anew, or with `sha256sum`, need not know of trees."""
    folder = copied(released, tmp_path / "r")
    write_digests(folder)
    assert digests.TREE not in (folder / DIGESTS).read_text("utf-8")
    assert verify_folder(folder).ok


def test_a_release_that_is_saved_again_keeps_its_digest(tmp_path, released):
    sdp.load(released).save(tmp_path / "again")
    assert (tmp_path / "again" / DIGESTS).read_bytes() == (released / DIGESTS).read_bytes()
    assert verify_folder(tmp_path / "again").ok


# ------------------------------------------------------------- folders of earlier versions

OLD = "tests/release/old"


@pytest.fixture(params=["npy", "parquet", "zarr"])
def old(request, tmp_path, pytestconfig):
    """A folder with plain digests, as versions before trees have written it."""
    import shutil

    if request.param == "zarr":
        pytest.importorskip("zarr")
    shutil.copytree(pytestconfig.rootpath / OLD / request.param, tmp_path / "old")
    return tmp_path / "old"


def test_folders_of_earlier_versions_verify(tmp_path, old):
    assert digests.TREE not in "".join(p.read_text("utf-8") for p in old.glob("*.json"))
    assert verify_folder(old).ok
    release = sdp.load(old)
    release.save(tmp_path / "again")
    for name in ("certificate.json", DIGESTS):
        assert (tmp_path / "again" / name).read_bytes() == (old / name).read_bytes()
    assert verify_folder(tmp_path / "again").ok


def test_altered_folders_of_earlier_versions_do_not(old):
    stored = sdp.load(old).stored
    values = np.array(stored.array())
    if stored.kind == "npy":
        values[0, 0] += 1
        np.save(old / "values.npy", values)
        assert {"digests", "files belong together", "values"} <= failed(old)
        write_digests(old)
    else:
        path = old / "certificate.json"
        path.write_text(path.read_text("utf-8").replace(stored.sha256, "0" * 64), "utf-8")
        assert not check_digests(old).ok
        write_digests(old)
    assert {"files belong together", "values"} <= failed(old)
