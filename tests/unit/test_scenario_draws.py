"""Draws are the posterior's, within bounds, and each depends on its own name and index alone."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import truncnorm

from app.calibration.posterior import posterior
from app.calibration.residual import Noise, Residuals
from app.calibration.solver import Problem, Solution
from app.errors import InvalidInputError
from app.scenario.draws import draw, spread_of
from app.scenario.keys import DrawKey
from app.telemetry import FloatArray
from app.twin.document import Covariance, Parameter, TwinDocument
from tests.physics import model_of, two_link
from tests.scenarios import arm, declared, draft_of, joint, parameter, published, twin_of, wide

KEY = DrawKey(7, "arm-07", 7)
MANY = np.arange(100_000)

DAMPING, COULOMB = joint("elbow", "viscous_damping_nm_s_per_rad"), joint("elbow", "coulomb_friction_nm")
ARMATURE, OFFSET = joint("elbow", "armature_kg_m2"), joint("elbow", "encoder_offset_rad")


def same_bits(one: FloatArray, other: FloatArray) -> bool:
    return one.tobytes() == np.ascontiguousarray(other).tobytes()


# Of scenarios 0, 1 and 10⁹.
KNOWN_WORDS = ["0x405cd263714c7b9f", "0xd12de22b79f0af6d", "0x2e98e9d084d62e42"]
KNOWN_DRAWS = [-0.006700393632771762, 0.009043926249331974, -0.009076909159060292]


def test_a_known_draw_never_changes() -> None:
    """A release that draws other numbers for the same keys would make every recorded scenario mean another robot."""
    drawn = draw(spread_of(twin_of({OFFSET: parameter(0.0, 0.01, (-1.0, 1.0))})), KEY, np.array([0, 1, 10**9]))
    words = KEY.words(OFFSET, np.array([0, 1, 10**9]))
    assert [hex(word) for word in words[0].tolist()] == KNOWN_WORDS
    np.testing.assert_allclose(drawn[OFFSET], KNOWN_DRAWS, rtol=1e-12)


def test_the_stream_of_a_quantity_is_numpys_philox_under_a_digest_as_the_document_says() -> None:
    digest = hashlib.sha256(
        json.dumps(["twincal.scenario/1", 7, "arm-07", 7, OFFSET], separators=(",", ":")).encode()
    ).digest()
    generator = np.random.Philox(key=np.frombuffer(digest[:16], "<u8"), counter=np.array([123, 1, 0, 0], np.uint64))
    assert KEY.words(OFFSET, np.array([123]), block=1)[:, 0].tolist() == generator.random_raw(4).tolist()


@pytest.mark.parametrize("difficulty", [1.0, 0.3])
def test_a_thousand_of_a_hundred_thousand_are_the_thousand_asked_for_alone(difficulty: float) -> None:
    spread = spread_of(arm())
    all_of_them = draw(spread, KEY, MANY, difficulty)
    scattered = np.unique(np.random.default_rng(1).choice(MANY, 1000))
    for chosen in (np.arange(1000), np.arange(98_765, 99_765), scattered):
        some = draw(spread, KEY, chosen, difficulty)
        assert all(same_bits(some[name], all_of_them[name][chosen]) for name in all_of_them)
    one_by_one = [draw(spread, KEY, np.array([i]), difficulty)[COULOMB][0] for i in (4711, 3, 50_000)]
    assert one_by_one == all_of_them[COULOMB][[4711, 3, 50_000]].tolist()


def test_seed_robot_version_index_and_name_each_give_another_draw() -> None:
    keys = [KEY, replace(KEY, seed=8), replace(KEY, robot="arm-08"), replace(KEY, version=8)]
    words = [key.words(name, np.arange(100))[0].tobytes() for key in keys for name in (OFFSET, ARMATURE)]
    assert len(set(words)) == len(words)
    assert len(set(KEY.words(OFFSET, MANY)[0].tolist())) == len(MANY)


def test_moments_and_correlations_are_the_posterior_s() -> None:
    correlation = np.array([[1.0, 0.7, -0.5], [0.7, 1.0, 0.1], [-0.5, 0.1, 1.0]])
    parameters = {
        ARMATURE: parameter(0.21, 0.0105, (1e-6, 10.0)),
        OFFSET: parameter(0.004, 0.002, (-1.0, 1.0)),
        DAMPING: parameter(0.5, 0.02, (0.0, 60.0)),
    }
    drawn = draw(spread_of(twin_of(parameters, correlation)), KEY, MANY)
    coordinates = np.array([np.log(drawn[ARMATURE]), drawn[OFFSET], drawn[DAMPING]])
    np.testing.assert_allclose(coordinates.mean(axis=1), [np.log(0.21), 0.004, 0.5], atol=3e-4)
    np.testing.assert_allclose(coordinates.std(axis=1), [0.05, 0.002, 0.02], rtol=0.01)
    np.testing.assert_allclose(np.corrcoef(coordinates), correlation, atol=0.01)


@pytest.mark.parametrize(("value", "correlation"), [(0.0, -0.95), (0.3, -0.5), (0.0, 0.9)])
def test_where_bounds_bind_the_draws_are_the_cut_normal_s_and_none_is_piled_up_on_them(
    value: float, correlation: float
) -> None:
    parameters = {DAMPING: parameter(value, 1.0, (0.0, 60.0)), COULOMB: parameter(value, 1.0, (0.0, 60.0))}
    matrix = np.array([[1.0, correlation], [correlation, 1.0]])
    drawn = draw(spread_of(twin_of(parameters, matrix)), KEY, MANY)
    both = np.array([drawn[DAMPING], drawn[COULOMB]])
    assert both.min() > 0.0
    plain = np.random.default_rng(0).multivariate_normal([value, value], matrix, 2_000_000).T
    kept = plain[:, (plain > 0.0).all(axis=0)]
    for share in (5, 25, 50, 75, 95):
        expected = np.percentile(kept, share, axis=1)
        np.testing.assert_allclose(np.percentile(both, share, axis=1), expected, atol=0.03 * float(kept.std()))
    assert np.abs(np.corrcoef(both) - np.corrcoef(kept)).max() < 0.02


def test_what_the_data_said_nothing_of_has_its_prior_s_width() -> None:
    drawn = draw(spread_of(twin_of({ARMATURE: wide()})), KEY, MANY)[ARMATURE]
    assert np.log(drawn).std() == pytest.approx(1.5, rel=0.01)
    assert np.median(drawn) == pytest.approx(0.2, rel=0.02)


def test_a_fit_that_learns_nothing_publishes_a_posterior_whose_draws_are_the_prior_cut_at_its_bounds() -> None:
    model = model_of(two_link(), {"kind": "pd", "kp": 60.0, "kd": 3.0})
    free = tuple(i for i, spec in enumerate(model.specs) if spec.fitted)
    problem, at, none = Problem(model, [], free, np.full(2, 1e-5)), model.initial(), np.zeros((1, len(free)))
    noise = Noise(np.ones(2), np.ones(2))
    found = Residuals(np.zeros((1, 1, 2)), np.ones((1, 2), bool), (0, 1), np.zeros(1, bool))
    learnt = posterior(problem, Solution(at, problem.to_z(at), noise, 0.0, none, np.ones(1), found, 1, True))
    specs = {model.specs[i].name: model.specs[i] for i in free}
    covariance = Covariance(
        names=learnt.names,
        transform={name: spec.transform for name, spec in specs.items()},
        matrix=tuple(tuple(row) for row in learnt.covariance.tolist()),
    )
    parameters = {name: parameter(spec.initial, 1.0, spec.bounds, "no_effect") for name, spec in specs.items()}
    document = published(draft_of(parameters).model_copy(update={"covariance": covariance}))
    drawn = draw(spread_of(document), KEY, np.arange(20_000))
    for name, spec in specs.items():
        _, sd = spec.prior_moments()
        expected = truncnorm(*((spec.coordinate(b) - spec.coordinate(spec.initial)) / sd for b in spec.bounds))
        offset = (spec.coordinate(drawn[name]) - spec.coordinate(spec.initial)) / sd
        assert offset.std() == pytest.approx(expected.std(), rel=0.03), name
        assert offset.mean() == pytest.approx(expected.mean(), abs=0.03), name


def test_a_value_past_its_bound_by_a_rounding_is_at_it() -> None:
    rounded = parameter(0.0, 0.5, (0.0, 60.0)).model_copy(update={"value": -1e-17})
    drawn = draw(spread_of(twin_of({COULOMB: rounded})), KEY, MANY)[COULOMB]
    assert drawn.min() > 0.0
    assert np.median(drawn) == pytest.approx(0.5 * 0.6745, rel=0.02)


def test_masses_armatures_frictions_and_latency_are_never_negative() -> None:
    twin = arm()
    drawn = draw(spread_of(twin), KEY, MANY, 2.0)
    for name, values in drawn.items():
        low, high = twin.parameters[name].bounds or (None, None)
        assert low is not None
        assert high is not None
        assert low <= values.min() <= values.max() <= high
        assert (values.min() > 0.0) == (not name.endswith(("_m", "_rad")) or name.endswith("per_rad"))


def test_an_unbounded_friction_stays_above_zero() -> None:
    loose = parameter(0.1, 0.5, (0.0, 60.0)).model_copy(update={"bounds": None})
    assert draw(spread_of(twin_of({COULOMB: loose})), KEY, MANY)[COULOMB].min() > 0.0


def test_difficulty_scales_each_scenario_about_the_twin_and_zero_is_the_twin_itself() -> None:
    parameters = {ARMATURE: parameter(0.21, 0.0105, (1e-6, 10.0)), OFFSET: parameter(0.004, 0.002, (-1.0, 1.0))}
    spread = spread_of(twin_of(parameters, np.array([[1.0, 0.6], [0.6, 1.0]])))
    full, half, none = (draw(spread, KEY, np.arange(1000), d) for d in (1.0, 0.5, 0.0))
    np.testing.assert_allclose(half[OFFSET] - 0.004, 0.5 * (full[OFFSET] - 0.004), rtol=1e-9)
    np.testing.assert_allclose(np.log(half[ARMATURE] / 0.21), 0.5 * np.log(full[ARMATURE] / 0.21), rtol=1e-9)
    assert {float(value) for value in none[ARMATURE]} == {0.21}
    everything = draw(spread_of(arm()), KEY, np.arange(10), 0.0)
    assert all(set(everything[name].tolist()) == {one.value} for name, one in arm().parameters.items() if one.sd)


def test_a_parameter_that_comes_later_changes_none_of_those_before_it() -> None:
    """Whatever it is correlated with, as long as no bound binds."""
    correlation = np.full((3, 3), 0.5) + 0.5 * np.eye(3)
    parameters = {
        ARMATURE: parameter(0.21, 0.0105, (1e-6, 10.0)),
        OFFSET: parameter(0.004, 0.002, (-1.0, 1.0)),
        DAMPING: parameter(0.5, 0.02, (0.0, 60.0)),
    }
    before = dict(list(parameters.items())[:2])
    few = draw(spread_of(twin_of(before, correlation[:2, :2])), KEY, np.arange(1000))
    more = draw(spread_of(twin_of(parameters, correlation)), KEY, np.arange(1000))
    assert all(same_bits(few[name], more[name]) for name in before)


def test_an_uncorrelated_parameter_changes_no_other_wherever_it_stands() -> None:
    first = {COULOMB: parameter(0.1, 0.5, (0.0, 60.0))}
    rest = {DAMPING: parameter(0.2, 0.5, (0.0, 60.0)), OFFSET: parameter(0.004, 0.002, (-1.0, 1.0))}
    alone = draw(spread_of(twin_of(rest)), KEY, np.arange(1000))
    together = draw(spread_of(twin_of(first | rest)), KEY, np.arange(1000))
    for name in rest:
        np.testing.assert_allclose(together[name], alone[name], rtol=1e-8)


def test_a_direction_without_width_is_followed_and_not_an_error() -> None:
    parameters = {DAMPING: parameter(0.2, 0.5, (0.0, 60.0)), COULOMB: parameter(0.2, 0.5, (0.0, 60.0))}
    drawn = draw(spread_of(twin_of(parameters, np.ones((2, 2)))), KEY, np.arange(1000))
    np.testing.assert_allclose(drawn[DAMPING], drawn[COULOMB], atol=1e-4)


def test_a_parameter_known_exactly_stays_where_it_is() -> None:
    parameters = {OFFSET: parameter(0.004, 0.0, (-1.0, 1.0)), COULOMB: parameter(0.0, 0.0, (0.0, 60.0))}
    drawn = draw(spread_of(twin_of(parameters)), KEY, np.arange(100))
    assert (set(drawn[OFFSET].tolist()), set(drawn[COULOMB].tolist())) == ({0.004}, {0.0})


@pytest.mark.parametrize(
    ("twin", "where"),
    [
        (twin_of({DAMPING: parameter(70.0, 1.0, (0.0, 80.0)).model_copy(update={"bounds": (0.0, 60.0)})}), 1),
        (
            twin_of(
                {OFFSET: parameter(0.1, 0.1, (-1.0, 1.0)), DAMPING: parameter(0.5, 0.1, (0.0, 60.0))},
                np.array([[1.0, 2.0], [2.0, 1.0]]),
            ),
            0,
        ),
    ],
)
def test_a_twin_that_can_t_be_drawn_from_says_what_is_wrong_with_it(twin: TwinDocument, where: int) -> None:
    with pytest.raises(InvalidInputError) as raised:
        spread_of(twin)
    assert raised.value.where == ("covariance.matrix", f"parameters.{DAMPING}")[where]


def test_the_twin_is_not_touched_and_what_was_not_fitted_is_not_drawn() -> None:
    parameters: dict[str, Parameter] = {ARMATURE: parameter(0.21, 0.01, (1e-6, 10.0))}
    twin = twin_of(parameters | {joint("elbow", "kp_nm_per_rad"): declared(40.0)})
    before = twin.model_dump_json()
    assert set(draw(spread_of(twin), KEY, np.arange(10))) == {ARMATURE}
    assert twin.model_dump_json() == before
