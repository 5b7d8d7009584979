"""Write the dashboards as Grafana reads them.

python -m monitoring.grafana.generate        (make dashboards)
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from monitoring.grafana import calibrations, fleet, ingest, robot, services

FOLDER: Final = Path(__file__).parent / "dashboards"
BUILDERS: Final = {
    "calibrations": calibrations.build,
    "fleet": fleet.build,
    "ingest": ingest.build,
    "robot": robot.build,
    "services": services.build,
}


def render() -> Mapping[str, str]:
    """Each dashboard's file name and what belongs in it."""
    return {f"{name}.json": _to_json(build().build()) for name, build in BUILDERS.items()}


def _to_json(made: Dashboard) -> str:
    # Numbers that stay as long as the order does: links to single panels name them.
    for number, panel in enumerate(made.panels or (), start=1):
        panel.id_val = number
    return json.dumps(made, cls=JSONEncoder, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def main() -> None:
    """Write all of them."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in render().items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    main()
