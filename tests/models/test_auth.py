"""Who is asking is said in headers, and nowhere else."""

from perdure.models.auth import FixedHeaders


async def test_the_same_headers_are_sent_every_time():
    auth = FixedHeaders({"authorization": "Bearer secret"})
    assert await auth.headers("https://host.example", b"") == {"authorization": "Bearer secret"}
    assert not await auth.renew()


def test_a_key_is_named_without_giving_it_away():
    one, other = FixedHeaders({"authorization": "Bearer secret"}), FixedHeaders({"authorization": "Bearer other"})
    assert one.identity == FixedHeaders({"authorization": "Bearer secret"}).identity != other.identity
    assert "secret" not in one.identity + repr(one)
    assert FixedHeaders({}).identity == ""
    assert FixedHeaders({"a": "b"}, "mine").identity == "mine"
