from __future__ import annotations

from pathlib import Path

import pytest

from app.errors import InvalidInputError
from app.settings import Settings


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWINCAL_DATABASE_URL", "postgresql://u:p@db:5432/twincal")
    monkeypatch.setenv("TWINCAL_DATA_DIR", "/srv/data")
    settings = Settings()
    assert settings.database_url == "postgresql://u:p@db:5432/twincal"
    assert settings.data_dir == Path("/srv/data")


def test_a_misspelt_variable_is_refused_with_the_one_that_was_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWINCAL_DATABSE_URL", "postgresql://u:p@db:5432/twincal")
    with pytest.raises(InvalidInputError, match=r"^TWINCAL_DATABSE_URL: is no setting \(TWINCAL_DATABASE_URL is\)$"):
        Settings()


def test_a_variable_of_somebody_else_is_none_of_our_business(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWINCAL_SOMETHING_OF_A_WRAPPER_SCRIPT", "1")
    Settings()


def test_an_unknown_setting_is_refused_by_name() -> None:
    with pytest.raises(InvalidInputError, match=r"^TWINCAL_COLOUR: Extra inputs are not permitted$"):
        Settings.model_validate({"colour": "red"})
