"""Who is asking is said in headers, and nowhere else."""

from perdure.models.auth import Fixed


async def test_the_same_headers_are_sent_every_time():
    auth = Fixed({"authorization": "Bearer secret"})
    assert await auth.headers("https://host.example", b"") == {"authorization": "Bearer secret"}
    assert not await auth.renew()


def test_a_key_is_named_without_giving_it_away():
    one, other = Fixed({"authorization": "Bearer secret"}), Fixed({"authorization": "Bearer other"})
    assert one.identity == Fixed({"authorization": "Bearer secret"}).identity != other.identity
    assert "secret" not in one.identity + repr(one)
    assert Fixed({}).identity == ""
    assert Fixed({"a": "b"}, "mine").identity == "mine"
