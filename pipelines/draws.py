"""The one place for random draws: hashes of (seed, what for, id), so that a draw depends on nothing
but itself.
"""

import hashlib
from collections.abc import Iterable

import numpy as np


def uniform(seed: int, purpose: str, key: str) -> float:
    """A number in [0, 1) that depends only on the arguments, the same on every machine."""
    digest = hashlib.blake2b(f"{seed}\x1f{purpose}\x1f{key}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def uniforms(seed: int, purpose: str, keys: Iterable[str]) -> np.ndarray:
    """`uniform` for many keys, (n,) float64; some 3 million a second."""
    return _hashes(seed, purpose, keys) / 2.0**64


def streams(seed: int, purpose: str, keys: Iterable[str], n: int) -> np.ndarray:
    """`n` numbers in [0, 1) for each key, (keys, n) float64; each key's hash starts a SplitMix64 of
    its own.
    """
    return splitmix64(_hashes(seed, purpose, keys), n) / 2.0**64


def _hashes(seed: int, purpose: str, keys: Iterable[str]) -> np.ndarray:
    copy_prefix = hashlib.blake2b(f"{seed}\x1f{purpose}\x1f".encode(), digest_size=8).copy
    digests = []
    for key in keys:
        digest = copy_prefix()
        digest.update(key.encode())
        digests.append(digest.digest())
    return np.frombuffer(b"".join(digests), ">u8").astype(np.uint64)


def splitmix64(starts: np.ndarray, n: int) -> np.ndarray:
    """The first `n` numbers of the generators with these states, (starts, n) uint64 (Steele et al.,
    2014).
    """
    state = starts[:, None] + np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        state ^= state >> np.uint64(shift)
        state *= np.uint64(factor)
    state ^= state >> np.uint64(31)
    return state


def sample(seed: int, purpose: str, keys: list[str], n: int) -> np.ndarray:
    """Positions of the `n` keys with the smallest draws, in the keys' own order, (min(n, len),)
    int64.
    """
    # ties are broken by the key, so that the order is total
    order = np.lexsort((np.array(keys), uniforms(seed, purpose, keys)))
    return np.sort(order[:n])


def generator(seed: int, purpose: str, key: str = "") -> np.random.Generator:
    """A NumPy generator seeded by the same hash, for draws of many numbers (bootstrap,
    permutations).
    """
    digest = hashlib.blake2b(f"{seed}\x1f{purpose}\x1f{key}".encode(), digest_size=16).digest()
    return np.random.default_rng(int.from_bytes(digest, "big"))
