"""Byte strings from public bug reports, sent as they are: each refusal complete and silent, each good one let through."""
import json
import os

import pytest

from wire import Client, Response, refused

FILE = os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "unit", "data", "vectors_raw.jsonl")
# PRI is the preface of another HTTP version: 505 says it better than 400, and RFC 9110 15.6.6 wants it.
ALSO = {"c077": {"505"}}


def vectors():
    with open(FILE, encoding="utf-8") as f:
        found = [json.loads(line) for line in f if line.strip()]
    return [v for v in found if "hex" in v]


def title(v):
    return v["case"] + "-" + v["show"].split(" HTTP/")[0][:50].replace("/", "_")


@pytest.mark.parametrize("vector", vectors(), ids=title)
def test_vector(shared, mark, vector):
    with Client(shared.port) as c:
        c.send(bytes.fromhex(vector["hex"]))
        head = c.until(b"\r\n\r\n")
        r = Response(head)
        if vector["expect"] == "accept":
            assert r.status == 200 or r.status in (502, 504), r
            assert mark.dialed(), "accepted, but nothing was dialed"
            return
        raw = head + c.rest()
    r = refused(raw)
    assert str(r.status) in {vector["expect"]} | ALSO.get(vector["case"], set()), r
    mark.silent()


def test_there_are_vectors():
    assert len(vectors()) > 100


@pytest.mark.parametrize("vector", [v for v in vectors() if v["expect"] != "accept"][::7], ids=title)
def test_vector_byte_by_byte(shared, mark, vector):
    """The same decision when each byte comes alone."""
    data = bytes.fromhex(vector["hex"])
    with Client(shared.port) as c:
        try:
            for i in range(len(data)):
                c.send(data[i:i + 1])
        except (BrokenPipeError, ConnectionResetError):
            pass  # refused before the last byte: the reply must be there all the same
        r = refused(c.rest())
    assert str(r.status) in {vector["expect"]} | ALSO.get(vector["case"], set()), r
    mark.silent()
