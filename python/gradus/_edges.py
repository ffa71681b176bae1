"""Edges between atoms, by vesin or ASE: whichever is installed."""

from __future__ import annotations

import importlib

import numpy as np

from .errors import Error


def find_edges(
    positions: np.ndarray, cell: np.ndarray, periodic: np.ndarray, cutoff: float
) -> tuple[np.ndarray, np.ndarray]:
    """Edges between atoms nearer than `cutoff`, every pair twice.

    positions f64[N, 3]; cell f64[3, 3], its vectors as rows; periodic bool[3]. Gives edges i64[2, E],
    and cells f64[E, 3]: how many cells the second atom is away, along each vector. Raises Error where
    neither library is there.
    """
    vesin, ase = _module("vesin"), _module("ase.neighborlist")
    if vesin is not None:
        search = vesin.NeighborList(cutoff=cutoff, full_list=True)
        i, j, cells = search.compute(
            points=positions, box=cell, periodic=list(periodic), quantities="ijS"
        )
    elif ase is not None:
        i, j, cells = ase.primitive_neighbor_list("ijS", periodic, cell, positions, cutoff)
    else:
        raise Error("edges between atoms need vesin or ASE: `pip install vesin` (or `ase`)")
    return np.stack([i, j]).astype(np.int64), np.asarray(cells, dtype=np.float64)


def _module(name: str):
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


class EdgeList:
    """Edges that serve until an atom has moved half of `skin`, or the box is another one."""

    def __init__(self, cutoff: float, skin: float) -> None:
        if skin < 0:
            raise Error(f"skin is a length of at least 0, not {skin}")
        self.reach, self.skin = cutoff + skin, skin
        self._positions = np.zeros((0, 3))  # when edges were looked for, and the box
        self._box: tuple[bytes, bytes] | None = None
        self._edges, self._cells = np.zeros((2, 0), dtype=np.int64), np.zeros((0, 3))

    def find(
        self, positions: np.ndarray, cell: np.ndarray, periodic: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Edges i64[2, E] and shifts f64[E, 3]."""
        box = (cell.tobytes(), periodic.tobytes())
        if box != self._box or self._has_moved(positions):
            self._edges, self._cells = find_edges(positions, cell, periodic, self.reach)
            self._positions, self._box = positions.copy(), box
        return self._edges, self._cells @ cell

    def _has_moved(self, positions: np.ndarray) -> bool:
        if self.skin == 0 or positions.shape != self._positions.shape:
            return True
        off = positions - self._positions
        return bool((off**2).sum(axis=1).max(initial=0) > (self.skin / 2) ** 2)
