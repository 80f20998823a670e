"""Find token sequences that begin alike, so that a model reads their common beginning once."""

import numpy as np

from pipelines.lm.ragged import Ragged, padded

# Prefix lengths are multiples of it, so that many are equal and are read in batches, unpadded.
BLOCK_TOKENS = 16
MIN_SAVED = 0.2  # share of all tokens: saving fewer does not pay for more and smaller passes


def shared_prefixes(rows: Ragged, limits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Group sequences by common beginnings; returns prefix lengths and groups, (rows,) each.

    A prefix has at most `limits` (rows,) tokens. The members of a group have that many first tokens
    in common. Among the lengths 16, 32, 64, ... that a prefix may have at least, the one is chosen
    that saves the most tokens. Sequences without a prefix have length 0 and group 0.
    """
    n_rows = len(limits)
    width = int(limits.max(initial=0))
    best_lengths = np.zeros(n_rows, np.int64)
    best_groups = np.zeros(n_rows, np.int64)
    if n_rows < 2 or width < BLOCK_TOKENS:
        return best_lengths, best_groups

    table, _ = padded(rows.slice(0, limits), width, -1)
    table = (table + 1).astype(">u4")  # big-endian, so that order by bytes is order by tokens
    row_bytes = table.view(f"S{4 * width}").ravel()
    order = np.argsort(row_bytes, kind="stable")
    common = _common_with_previous(table[order], limits[order])

    most_saved = MIN_SAVED * rows.lengths.sum()
    min_length = BLOCK_TOKENS
    while min_length <= width:
        begins_group = common < min_length
        starts = np.flatnonzero(np.concatenate([[True], begins_group]))
        members = np.diff(np.append(starts, n_rows))
        common_in_group = np.where(begins_group, width, common)
        within_group = np.concatenate([[width], common_in_group])
        shortest = np.minimum.reduceat(within_group, starts)
        whole_blocks = shortest // BLOCK_TOKENS * BLOCK_TOKENS
        lengths = np.where(members > 1, whole_blocks, 0)

        saved = int((lengths * (members - 1)).sum())
        if saved > most_saved:
            most_saved = saved
            numbers = np.arange(1, len(starts) + 1)
            groups = np.where(lengths > 0, numbers, 0)
            best_lengths[order] = np.repeat(lengths, members)
            best_groups[order] = np.repeat(groups, members)
        min_length *= 2
    return best_lengths, best_groups


def _common_with_previous(table: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """How many first tokens each row but the first has in common with the row before, (rows - 1,).

    `table` (rows, width) has the tokens, of which at most `limits` (rows,) count.
    """
    differs = table[1:] != table[:-1]
    common = np.where(differs.any(1), differs.argmax(1), table.shape[1])
    shorter_limits = np.minimum(limits[1:], limits[:-1])
    return np.minimum(common, shorter_limits)
