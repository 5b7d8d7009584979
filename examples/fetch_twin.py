"""What a training job does before it starts: fetch its robot's twin, or learn that the one it has is still right.

    export TWINCAL_KEY=$(twincal keys create --scope read)
    python examples/fetch_twin.py --url http://127.0.0.1:8080 --robot arm-07 --cache twins

The standard library alone: where training runs, neither twincal nor PyBullet needs to be installed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen


def fetch(url: str, robot: str, key: str, cache: Path) -> tuple[dict[str, Any], bool]:
    """The robot's active twin, and whether it has come anew.

    A version never changes and its entity tag names it: with the tag of the one we have, the service answers 304 and no
    body as long as that is the active one.
    """
    document, tag = cache / f"{robot}.json", cache / f"{robot}.etag"
    request = Request(f"{url}/v1/robots/{robot}/twin", headers={"Authorization": f"Bearer {key}"})
    if document.exists() and tag.exists():
        request.add_header("If-None-Match", tag.read_text())
    try:
        with urlopen(request, timeout=30.0) as answer:
            content, etag = answer.read(), answer.headers["ETag"]
    except HTTPError as error:
        if error.code == 304:
            return json.loads(document.read_bytes()), False
        # RFC 9457: what is wrong and what to do about it, in words.
        problem = json.loads(error.read())
        raise SystemExit(f"{error.code} {problem['title']}: {problem.get('detail', '')}") from error
    cache.mkdir(parents=True, exist_ok=True)
    tag.unlink(missing_ok=True)  # never a tag beside a document that isn't its own
    document.write_bytes(content)
    tag.write_text(etag)
    return json.loads(content), True


def main() -> None:
    """Read the options, fetch the twin and show what is known of the robot."""
    parser = argparse.ArgumentParser(description="Fetch a robot's twin from twincal.")
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--robot", required=True)
    parser.add_argument("--cache", type=Path, default=Path("twins"))
    options = parser.parse_args()
    key = os.environ.get("TWINCAL_KEY") or sys.exit("set TWINCAL_KEY to a key of scope read")
    twin, is_new = fetch(options.url, options.robot, key, options.cache)
    word = "new" if is_new else "as before"
    print(f"{twin['robot']}: version {twin['version']}, grade {twin['quality']['grade']}, {word}")
    for name, parameter in twin["parameters"].items():
        # What isn't identified is a guess: randomise it over its interval rather than train on its value.
        if parameter["verdict"] == "identified":
            low, high = parameter["interval90"]
            print(f"  {name} = {parameter['value']:.6g}  ({low:.6g} … {high:.6g})")


if __name__ == "__main__":
    main()
