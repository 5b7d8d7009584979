"""Whether drift is raised by a worn joint and not by other work, and what watching a robot costs.

    python -m benchmarks.drift [--seed 1] [--robots 50] [--fit-s 20]

Each robot is the demonstration arm with two joints left to move, played by MuJoCo, with a hidden truth of its own; its
twin is calibrated on 20 s of motion (`--fit-s`) as any robot's is, and watched as the monitor does it, every 4 s. Then

1. it works for 60 s in another way than it was calibrated with: point to point slowly or fast, slow or fast sines, or
   small fast ones, in other poses; nothing about it has changed;
2. it works like that, and after 10 s the Coulomb friction of one joint rises by 30 %; once for each joint;
3. the cost of a look at a seven-joint arm at 200 Hz is measured, as CPU time whatever the number of cores.

The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

# What needs MuJoCo and the calibrator is imported where it is used: the processes in which a fit judges its twin import
# this module again.
if TYPE_CHECKING:
    from benchmarks._drift_fleet import Look, Robot

WORK_S: Final = 60.0
BEFORE_S: Final = 10.0
FACTOR: Final = 1.3
LIVE_ROBOTS: Final = 1000
LOOKS: Final = {"10 s": (10.0, 1.0), "30 s": (30.0, 1.0), "10 s, worn": (10.0, 2.0)}
"""How much telemetry a look has to judge [s], and the arm's friction over its twin's."""
REPEATS: Final = 20


def main() -> None:
    """Print the table and the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--robots", type=int, default=50)
    parser.add_argument("--fit-s", type=float, default=20.0)
    asked = parser.parse_args()
    cost_ms = {name: _cost_ms(*look) for name, look in LOOKS.items()}
    rows = []
    for number in range(asked.robots):
        rows.append(_robot(asked.seed, number, asked.fit_s))
        print(f"robot {number}: {json.dumps(rows[-1])}", file=sys.stderr, flush=True)
    _print(rows)
    cores = {name: LIVE_ROBOTS * cost_ms[name] * 1e-3 / LOOKS[name][0] for name in cost_ms}
    result = {
        "robots": len(rows),
        "seed": asked.seed,
        "fit_s": asked.fit_s,
        **_figures(rows),
        "look_ms": {name: round(cost, 1) for name, cost in cost_ms.items()},
        "cores_for_1000_robots": {name: round(count, 2) for name, count in cores.items()},
    }
    print(json.dumps(result))


def _figures(rows: list[dict[str, Any]]) -> dict[str, Any]:
    worn = [wear for row in rows for wear in row["wear"]]
    seconds = [wear["detected_s"] for wear in worn if wear["detected_s"] is not None]
    if not seconds:
        return {"worn": len(worn), "worn_detected": 0}
    scores = [wear["score"] for wear in worn]
    return {
        "other_motion": dict(Counter(row["state"] for row in rows)),
        "other_motion_highest_score": max(row["highest"] for row in rows),
        "worn": len(worn),
        "worn_detected": len(seconds),
        "worn_right_joint": sum(wear["named"] for wear in worn),
        "detection_s": {"median": statistics.median(seconds), "longest": max(seconds)},
        "worn_score": {"lowest": min(scores), "median": statistics.median(scores)},
    }


def _robot(seed: int, number: int, fit_s: float) -> dict[str, Any]:
    from benchmarks import _drift_fleet as fleet  # noqa: PLC0415 - see above

    robot = fleet.make_robot(seed, number, fit_s)
    healthy = robot.healthy(WORK_S)
    return {
        "kind": robot.kind,
        "state": max((look.state for look in healthy), key=("ok", "watch", "drifted").index),
        "highest": round(max(look.worst_score for look in healthy), 2),
        "wear": [_wear(robot, joint) for joint in fleet.JOINTS],
    }


def _wear(robot: Robot, joint: str) -> dict[str, Any]:
    looks = robot.worn(joint, FACTOR, BEFORE_S, WORK_S)
    before_s = max((look.moving_s for look in looks if look.moving_s <= BEFORE_S), default=0.0)
    after: list[Look] = [look for look in looks if look.moving_s > before_s]
    drifted = [look for look in after if look.state == "drifted"]
    return {
        "detected_s": drifted[0].moving_s - before_s if drifted else None,
        "named": bool(drifted) and drifted[0].worst_joint == joint,
        "score": round(statistics.median(look.worst_score for look in after[2:]), 2),
    }


def _print(rows: list[dict[str, Any]]) -> None:
    print(f"{'other motion':22} robots  states                highest score   worn: scores   detected after [s]")
    for kind in dict.fromkeys(row["kind"] for row in rows):
        group = [row for row in rows if row["kind"] == kind]
        states = ", ".join(f"{count} {state}" for state, count in Counter(row["state"] for row in group).items())
        wear = [wear for row in group for wear in row["wear"]]
        seconds = [each["detected_s"] for each in wear if each["detected_s"] is not None]
        scores = [each["score"] for each in wear]
        span = f"{min(seconds):.0f} … {max(seconds):.0f}" if seconds else "never"
        missed = f", {len(wear) - len(seconds)} missed" if len(seconds) < len(wear) else ""
        highest = max(row["highest"] for row in group)
        print(
            f"{kind:22} {len(group):6}  {states:22} {highest:12.2f}   {min(scores):5.1f} … {max(scores):5.1f}   "
            f"{span}{missed}"
        )


def _cost_ms(seconds: float, wear: float) -> float:
    """CPU time of a look at a seven-joint arm's telemetry, the median of repeats [ms].

    Args:
        seconds: of new telemetry.
        wear: its friction over its twin's; where that shows, a look takes a second, closer one.
    """
    from app.monitor.score import score_recording  # noqa: PLC0415 - see above
    from benchmarks._seven_joints import seven_joints  # noqa: PLC0415 - see above

    watched, recording, after_ns = seven_joints(seconds, wear)
    spent = []
    for _ in range(REPEATS + 1):
        began = time.process_time()
        score = score_recording(watched, recording, after_ns)
        spent.append(1e3 * (time.process_time() - began))
    assert score.windows == round(seconds / watched.window_s)
    cost_ms = statistics.median(spent[1:])  # the first one compiles
    print(
        f"{len(watched.model.joints)} joints at 200 Hz, friction {wear:.1f} times the twin's: "
        f"{cost_ms:.1f} ms of CPU time a look at {score.windows} windows"
    )
    return cost_ms


if __name__ == "__main__":
    main()
