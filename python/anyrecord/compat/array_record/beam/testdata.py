"""`data`: four people, the movies they rated, and what they were offered. `example` makes `tf.train.Example`s of it."""

from __future__ import annotations

from typing import Any

__all__ = ["data"]


def _person(age: int, ratings: dict[str, float], suggestion: str, purchased: float, price: float) -> dict[str, Any]:
    return {
        "Age": age,
        "Movie": list(ratings),
        "Movie Ratings": list(ratings.values()),
        "Suggestion": suggestion,
        "Suggestion Purchased": purchased,
        "Purchase Price": price,
    }


data: list[dict[str, Any]] = [
    _person(29, {"The Shawshank Redemption": 9.0, "Fight Club": 9.7}, "Inception", 1.0, 9.99),
    _person(39, {"The Prestige": 9.5, "The Big Lebowski": 8.5, "The Fall": 8.5}, "Interstellar", 1.0, 14.99),
    _person(
        19,
        {"Barbie": 9.6, "The Batman": 8.2, "Boss Baby": 10.0, "Oppenheimer": 4.2},
        "Secret Life of Pets",
        0.0,
        25.99,
    ),
    _person(35, {"The Mothman Prophecies": 8.3, "Sinister": 9.0}, "Hereditary", 1.0, 12.99),
]
