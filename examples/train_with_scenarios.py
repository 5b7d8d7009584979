"""A training loop that meets another robot each episode: a scenario of the twin, stepped in PyBullet.

    twincal fit --robot robot.yaml --log monday.csv --out twin.json
    python examples/train_with_scenarios.py --robot robot.yaml --twin twin.json --episodes 100

What is trained here fits on a page: how far ahead of time a sine has to be sent, and how much larger, for the joints to
follow it. Put your own policy and learner in the places of `error_of` and `main`'s loop; the robots stay as they are.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import yaml
from numpy.typing import NDArray

from app.scenario.generate import source_of
from app.scenario.play import opened_scenario, scenario_at
from app.scenario.request import ScenarioChoice
from app.twin.declaration import load_declaration
from app.twin.document import read_document
from app.twin.runtime import TwinRuntime

CONTROL_S = 0.02
JUDGED_FROM = 10**6  # indices no training episode reaches

Policy = NDArray[np.float64]  # [seconds ahead, factor]


def reference(t_s: float, count: int) -> NDArray[np.float64]:
    """Where the joints should be [rad]."""
    phase = 2.0 * np.pi * 0.7 * t_s + np.arange(count)
    return np.asarray(0.3 * np.sin(phase), dtype=np.float64)


def error_of(robot: TwinRuntime, policy: Policy, seconds: float) -> float:
    """Root mean square of how far the joints are from the reference, once they have caught up [rad]."""
    ahead_s, factor = policy
    count = len(robot.joints)
    robot.reset(reference(0.0, count))
    errors = []
    while robot.t_s < seconds:
        measured = robot.step(factor * reference(robot.t_s + ahead_s, count), CONTROL_S)
        if robot.t_s > 0.3 * seconds:
            errors.append(measured - reference(robot.t_s, count))
    return float(np.sqrt(np.mean(np.square(errors))))


def main() -> None:
    """Read the options, train, and judge on robots that training never met."""
    parser = argparse.ArgumentParser(description="Train on scenarios of a twin.")
    parser.add_argument("--robot", type=Path, required=True, help="the robot's declaration")
    parser.add_argument("--twin", type=Path, required=True, help="its twin document")
    parser.add_argument("--overlays", type=Path, help="YAML: a list of overlays")
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    declaration, description = load_declaration(options.robot)
    overlays = yaml.safe_load(options.overlays.read_text()) if options.overlays else []
    choice = ScenarioChoice(n=options.episodes, seed=options.seed, overlays=overlays)
    source = source_of(read_document(options.twin.read_bytes()), choice, list(description.links))

    def errors(index: int, *policies: Policy) -> list[float]:
        """What each policy achieves on the robot of this scenario."""
        scenario = scenario_at(source, choice, index)
        with opened_scenario(description, declaration, scenario, effort_limits=True) as robot:
            return [error_of(robot, policy, options.seconds) for policy in policies]

    random = np.random.default_rng(options.seed)
    untrained = np.array([0.0, 1.0])
    policy = untrained
    for episode in range(options.episodes):
        # Both on the same robot, so that luck with the robot decides nothing.
        candidate = policy + random.normal(0.0, [0.05, 0.1])
        now, then = errors(episode, policy, candidate)
        policy = candidate if then < now else policy
    judged = np.mean([errors(JUDGED_FROM + i, untrained, policy) for i in range(5)], axis=0)
    print(f"ahead {1e3 * policy[0]:.0f} ms, factor {policy[1]:.2f}")
    print(f"error on 5 unseen robots: {1e3 * judged[0]:.2f} mrad untrained, {1e3 * judged[1]:.2f} mrad trained")


if __name__ == "__main__":
    main()
