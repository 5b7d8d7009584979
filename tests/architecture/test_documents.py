"""What the documents claim exists."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from app.api import errors
from app.api.app import create_app
from app.database.engine import create_engine
from app.ingest.announcement import decode_announcement
from app.ingest.packet import Origin, decode_packet
from app.ingest.refusal import REASONS
from app.scenario.request import ScenarioRequest, read_choice
from tests.architecture.command_line import commands, setting_names

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
NOWHERE = "postgresql://nobody@127.0.0.1:1/nowhere"  # never connected to
# Named in documents for what is to come, always marked so.
TO_COME = {"excite", "import", "export"}


def test_every_command_is_in_the_command_line_document() -> None:
    text = (ROOT / "docs" / "cli.md").read_text()
    assert [words for words in commands() if f"twincal {words}" not in text] == []


def test_every_option_is_in_the_command_line_document() -> None:
    text = (ROOT / "docs" / "cli.md").read_text()
    missing = [
        f"{words} {option}"
        for words, options in commands().items()
        for option in options
        if option.startswith("--") and option != "--help" and f"`{option}" not in text
    ]
    assert missing == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_twincal_command_in_a_document_exists(document: Path) -> None:
    known = {words.split()[0] for words in commands()} | TO_COME
    used = re.findall(r"(?:^ {4}(?:\$ )?|`)(?:\.venv/bin/)?twincal ([a-z][a-z-]+)", document.read_text(), re.MULTILINE)
    assert set(used) - known == set()


def test_what_is_to_come_does_not_exist_yet() -> None:
    assert TO_COME & {words.split()[0] for words in commands()} == set()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_make_target_in_a_document_exists(document: Path) -> None:
    targets = re.findall(r"^([a-z][a-z-]*)%?:", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    used = re.findall(r"(?:^ {4}(?:\$ )?|`)make ([a-z]+)", document.read_text(), re.MULTILINE)
    assert set(used) - set(targets) == set()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(document: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)|src=\"([^\"]+)\"", document.read_text())
    targets = [first or second for first, second in links]
    broken = [
        link
        for link in targets
        if "://" not in link and not link.startswith("#") and not (document.parent / link).exists()
    ]
    assert broken == []


def test_every_decision_is_in_the_index() -> None:
    index = (ROOT / "docs" / "adr" / "README.md").read_text()
    decisions = sorted(path.name for path in (ROOT / "docs" / "adr").glob("[0-9]*.md"))
    assert [name for name in decisions if f"({name})" not in index] == []
    assert [int(name[:4]) for name in decisions] == list(range(1, len(decisions) + 1))


def test_every_setting_is_in_the_operations_document_and_none_that_is_not() -> None:
    text = (ROOT / "docs" / "operations.md").read_text()
    named = set(re.findall(r"\bTWINCAL_[A-Z_]+", text))
    assert named == setting_names()


def test_every_dead_letter_reason_is_in_the_protocol_document() -> None:
    text = (ROOT / "docs" / "protocol.md").read_text()
    assert [reason for reason in REASONS if f"`{reason}`" not in text] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_path_of_the_repository_in_a_document_exists(document: Path) -> None:
    paths = re.findall(r"`((?:app|migrations|deploy|monitoring|benchmarks|tests|docs)/[\w./-]*)`", document.read_text())
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_every_example_of_the_protocol_document_is_taken() -> None:
    text = (ROOT / "docs" / "protocol.md").read_text()
    word, *examples = re.findall(r"^ {4}(\{.*(?:\n {5,}.*)*)$", text, flags=re.MULTILINE)
    assert decode_announcement(word.encode(), None, 1).stamp_ns == 1_767_225_600_500_000_000
    packets = [decode_packet(example.encode(), Origin("arms", "arm-07", "joints", 1)) for example in examples]
    assert [packet.batch.names for packet in packets] == [("shoulder", "elbow")] * 3
    assert {packet.batch.stamp_ns for packet in packets} == {1_767_225_600_500_000_000}


def test_every_path_of_the_api_is_in_the_rest_document_and_none_that_is_not() -> None:
    text = (ROOT / "docs" / "rest.md").read_text()
    documented = set(re.findall(r"`(/(?:v1/[\w/{}-]+|livez|readyz|metrics))`", text))
    assert documented == set(create_app(create_engine(NOWHERE)).openapi()["paths"])


def test_every_type_of_problem_is_in_the_rest_document() -> None:
    slugs = set(re.findall(r'(?:_Kind\(|HTTPStatus\.\w+: )"([a-z-]+)"', Path(errors.__file__).read_text()))
    text = (ROOT / "docs" / "rest.md").read_text()
    assert [slug for slug in sorted(slugs) if f"`{slug}`" not in text] == []
    assert len(slugs) > 10


def test_every_library_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = [re.split(r"[\[>=<! ]", requirement)[0] for requirement in project["dependencies"]]
    reasons = (ROOT / "docs" / "adr" / "0007-libraries.md").read_text().lower()
    assert [name for name in names if name.lower() not in reasons] == []


def test_every_overlay_and_request_of_the_documents_is_taken() -> None:
    overlays = re.search(
        r"^ {4}(\[\{\"kind\".*(?:\n {5,}.*)*)$", (ROOT / "docs/scenarios.md").read_text(), re.MULTILINE
    )
    assert overlays is not None
    request = read_choice(ScenarioRequest, {"robot": "arm-07", "n": 1, "overlays": json.loads(overlays[1])})
    assert len({overlay.kind for overlay in request.overlays}) == 8
    body = re.search(r"^ {4}(\{\"robot\".*(?:\n {5,}.*)*)$", (ROOT / "docs/rest.md").read_text(), re.MULTILINE)
    assert body is not None
    assert read_choice(ScenarioRequest, json.loads(body[1])).n == 1000
