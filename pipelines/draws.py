"""The one place for random draws: hashes of (seed, what for, id), so that a draw depends on nothing but itself."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np


def uniform(seed: int, purpose: str, key: str) -> float:
    """A number in [0, 1) that depends only on the arguments, the same on every machine."""
    digest = hashlib.blake2b(f"{seed}\x1f{purpose}\x1f{key}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def uniforms(seed: int, purpose: str, keys: Iterable[str]) -> np.ndarray:
    """`uniform` for many keys, (n,) float64; some 2 million a second."""
    start = f"{seed}\x1f{purpose}\x1f"
    digests = [hashlib.blake2b((start + key).encode(), digest_size=8).digest() for key in keys]
    return np.frombuffer(b"".join(digests), ">u8") / 2.0**64


def sample(seed: int, purpose: str, keys: list[str], n: int) -> np.ndarray:
    """Positions of the `n` keys with the smallest draws, in the keys' own order, (min(n, len),) int64."""
    order = np.lexsort((np.array(keys), uniforms(seed, purpose, keys)))  # ties by key: a total order
    return np.sort(order[:n])


def generator(seed: int, purpose: str, key: str = "") -> np.random.Generator:
    """A NumPy generator seeded by the same hash, for draws of many numbers (bootstrap, permutations)."""
    digest = hashlib.blake2b(f"{seed}\x1f{purpose}\x1f{key}".encode(), digest_size=16).digest()
    return np.random.default_rng(int.from_bytes(digest, "big"))
