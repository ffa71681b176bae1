"""What a stage gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterable, Tuple

from ._display import results_html, results_text

if TYPE_CHECKING:
    from ._gradus import Tensor


class Results(Tuple["Tensor | None", ...]):
    """A stage's results in order, and by name: `r[0]`, `r["y"]`, `r.y`. None is an absent one: a
    structural zero, or a cotangent that was handed on."""

    names: tuple[str, ...]

    def __new__(cls, values: Iterable[Tensor | None], names: Iterable[str]) -> Results:
        self = super().__new__(cls, values)
        self.names = tuple(names)
        return self

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return super().__getitem__(self._place(key))
        return super().__getitem__(key)

    def __getattr__(self, name: str) -> Tensor | None:
        if name.startswith("__") or name == "names":
            raise AttributeError(name)
        try:
            return super().__getitem__(self._place(name))
        except KeyError as e:
            raise AttributeError(e.args[0]) from None

    def asdict(self) -> dict[str, Tensor | None]:
        """The results by name."""
        return dict(zip(self.names, self))

    def _place(self, name: str) -> int:
        if name not in self.names:
            raise KeyError(f"there is no result '{name}'; there are {', '.join(self.names)}")
        return self.names.index(name)

    def __repr__(self) -> str:
        return results_text(self)

    def _repr_html_(self) -> str:
        return results_html(self)
