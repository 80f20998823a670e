"""A draw depends on seed, purpose and id alone."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pipelines import draws


def test_draws_are_the_same_on_every_machine():
    assert draws.uniform(0, "test", "a") == 0.9558713958738062


@given(st.integers(), st.text(), st.text())
def test_a_draw_is_in_the_unit_interval_and_repeats(seed, purpose, key):
    value = draws.uniform(seed, purpose, key)
    assert 0 <= value < 1
    assert value == draws.uniform(seed, purpose, key)


@given(st.integers(), st.text(), st.lists(st.text()))
def test_many_draws_are_those_of_one_by_one(seed, purpose, keys):
    assert draws.uniforms(seed, purpose, keys).tolist() == [draws.uniform(seed, purpose, key) for key in keys]


def test_seed_purpose_and_key_all_matter():
    base = draws.uniform(0, "a", "b")
    assert len({base, draws.uniform(1, "a", "b"), draws.uniform(0, "b", "b"), draws.uniform(0, "a", "c")}) == 4
    assert draws.uniform(0, "ab", "c") != draws.uniform(0, "a", "bc")


def test_draws_are_uniform():
    values = draws.uniforms(0, "test", (str(i) for i in range(20_000)))
    counts, _ = np.histogram(values, 20, (0, 1))
    assert abs(counts - 1000).max() < 150


@given(st.lists(st.text(max_size=5), unique=True, max_size=40), st.integers(0, 50))
def test_a_sample_does_not_depend_on_the_order_of_the_keys(keys, n):
    chosen = {keys[i] for i in draws.sample(0, "test", keys, n)}
    backwards = keys[::-1]
    assert chosen == {backwards[i] for i in draws.sample(0, "test", backwards, n)}
    assert len(chosen) == min(n, len(keys))


@given(st.lists(st.text(max_size=5), unique=True, min_size=2, max_size=40))
def test_a_larger_sample_keeps_the_smaller_one(keys):
    small, large = (set(draws.sample(0, "test", keys, n)) for n in (len(keys) // 2, len(keys) // 2 + 1))
    assert small <= large


def test_streams_are_splitmix64s_own_numbers():
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert draws.splitmix64(np.array([1234567], dtype=np.uint64), 4)[0].tolist() == published


@given(st.lists(st.text(max_size=5), unique=True, max_size=20), st.integers(1, 20))
def test_a_keys_stream_does_not_depend_on_others_or_on_its_length(keys, n):
    together = draws.streams(0, "test", keys, 20)
    for key, row in zip(keys, together, strict=True):
        assert draws.streams(0, "test", [key], n)[0].tolist() == row[:n].tolist()


def test_streams_are_uniform_and_unlike_each_other():
    values = draws.streams(0, "test", (str(i) for i in range(2_000)), 20)
    counts, _ = np.histogram(values, 20, (0, 1))
    assert abs(counts - 2000).max() < 250
    assert abs(np.corrcoef(values.T) - np.eye(20)).max() < 0.1


def test_generators_repeat():
    first, second = (draws.generator(3, "bootstrap", "x").integers(0, 1 << 40, 5) for _ in range(2))
    assert (first == second).all()
    assert (first != draws.generator(3, "bootstrap", "y").integers(0, 1 << 40, 5)).any()
