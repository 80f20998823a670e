"""A draw depends on seed, purpose and id alone."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pipelines import draws

KEYS = st.lists(st.text(max_size=5), unique=True, max_size=40)


def test_draws_and_streams_are_the_same_on_every_machine():
    assert draws.uniform(0, "test", "a") == 0.9558713958738062
    # as published
    splitmix64 = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
    ]
    assert draws.splitmix64(np.array([1234567], dtype=np.uint64), 4)[0].tolist() == splitmix64


@given(st.integers(), st.text(), st.lists(st.text()))
def test_many_draws_are_those_of_one_by_one(seed, purpose, keys):
    values = draws.uniforms(seed, purpose, keys).tolist()
    assert values == [draws.uniform(seed, purpose, key) for key in keys]
    assert all(0 <= value < 1 for value in values)


def test_seed_purpose_and_key_all_matter():
    base = draws.uniform(0, "a", "b")
    others = {draws.uniform(1, "a", "b"), draws.uniform(0, "b", "b"), draws.uniform(0, "a", "c")}
    assert len({base, *others}) == 4
    assert draws.uniform(0, "ab", "c") != draws.uniform(0, "a", "bc")
    first, again, other = (
        draws.generator(3, "bootstrap", key).integers(0, 1 << 40, 5).tolist() for key in "xxy"
    )
    assert first == again != other


def test_draws_and_streams_are_uniform():
    values = draws.streams(0, "test", (str(i) for i in range(2_000)), 20)
    assert abs(np.corrcoef(values.T) - np.eye(20)).max() < 0.1
    for drawn in (values, draws.uniforms(0, "test", (str(i) for i in range(40_000)))):
        assert abs(np.histogram(drawn, 20, (0, 1))[0] - 2000).max() < 250


@given(KEYS, st.integers(0, 50))
def test_a_sample_does_not_depend_on_the_order_of_the_keys(keys, n):
    """A larger one keeps it."""
    chosen = {keys[i] for i in draws.sample(0, "test", keys, n)}
    backwards = keys[::-1]
    assert chosen == {backwards[i] for i in draws.sample(0, "test", backwards, n)}
    assert chosen <= {keys[i] for i in draws.sample(0, "test", keys, n + 1)}
    assert len(chosen) == min(n, len(keys))


@given(KEYS, st.integers(1, 20))
def test_a_keys_stream_does_not_depend_on_others(keys, n):
    together = draws.streams(0, "test", keys, 20)
    for key, row in zip(keys, together, strict=True):
        assert draws.streams(0, "test", [key], n)[0].tolist() == row[:n].tolist()
