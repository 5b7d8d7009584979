"""The report says everything a colleague needs, in one file, whatever the robot and its logs are called."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import lxml.html
import numpy as np
import pytest

from app.calibration.findings import Whiteness
from app.calibration.report import render_failure, render_report
from app.calibration.report_correlation import correlations
from app.calibration.report_data import Excitation, Horizon, Looks, Overlay, ReportData
from app.calibration.report_parameters import parameter_groups
from app.calibration.report_words import NOT_KNOWN
from app.calibration.types import Acceptance, StructureTried
from app.twin.document import (
    Covariance,
    DescriptionRef,
    DraftProvenance,
    Engine,
    Gauge,
    HoldoutErrors,
    JointErrors,
    LogErrors,
    LognormalPrior,
    NormalPrior,
    Parameter,
    Quality,
    SensorNoise,
    Structure,
    TwinDraft,
    Verdict,
    WindowedErrors,
)

HOSTILE = '<img src="https://evil.example/x.png" onerror="alert(1)">$\\frac{'
JOINTS = ("shoulder_pan", "shoulder_lift", HOSTILE, "wrist_flex", "wrist_roll")
REASON = "hold-out RMSE 5.6 mrad against nominal 47: the gain's 90 % interval [0.86, 0.90] lies above 0"
WARNING = "joint wrist_roll: hysteresis is left over <b>here</b>"


def fitted(value: float, share: float, verdict: Verdict, *, log: bool, nominal: float = 0.0) -> Parameter:
    """A fitted parameter with `share` of its prior's width left."""
    if log:
        prior_mean, prior_sd = float(np.log(value)) - 0.4, 1.2
        sd = share * prior_sd
        ends = (value * float(np.exp(-1.645 * sd)), value * float(np.exp(1.645 * sd)))
        return Parameter(
            value=value,
            sd=value * sd,
            interval90=ends,
            verdict=verdict,
            source="fit",
            nominal=nominal,
            prior=LognormalPrior(lognormal=(prior_mean, prior_sd)),
            bounds=(float(np.exp(prior_mean - 7.2)), float(np.exp(prior_mean + 7.2))),
        )
    prior_sd = 2.0 * abs(value) or 0.02
    sd = share * prior_sd
    return Parameter(
        value=value,
        sd=sd,
        interval90=(value - 1.645 * sd, value + 1.645 * sd),
        verdict=verdict,
        source="fit",
        nominal=nominal,
        prior=NormalPrior(normal=(nominal, prior_sd)),
        bounds=(0.0 if value - 1.645 * sd >= 0.0 else -20.0 * prior_sd, 20.0 * prior_sd),
    )


def parameters() -> dict[str, Parameter]:
    found: dict[str, Parameter] = {}
    for k, joint in enumerate(JOINTS):
        path = f"joint/{joint}/"
        found[path + "armature_kg_m2"] = fitted(0.0123 / (k + 1), 0.02, "weak", log=True)
        found[path + "viscous_damping_nm_s_per_rad"] = fitted(0.21 / (k + 1), 0.05, "identified", log=False)
        found[path + "coulomb_friction_nm"] = fitted(0.09, 0.01, "identified", log=False)
        found[path + "encoder_offset_rad"] = fitted(0.004 - 0.003 * k, 0.5, "weak", log=False)
        found[path + "duty_stiffness_nm_per_rad"] = fitted(14.2, 0.4, "weak", log=True)
    for k, link in enumerate(("upper_arm", "forearm")):
        found[f"link/{link}/mass_kg"] = fitted(0.35, 0.97, "not_identified", log=True, nominal=0.33)
        found[f"link/{link}/com_x_m"] = fitted(0.05, 1.0, "no_effect" if k else "at_bound", log=False, nominal=0.06)
    found["robot/command_latency_s"] = fitted(0.0214, 0.01, "identified", log=False)
    found["joint/wrist_roll/kd_nm_s_per_rad"] = Parameter(
        value=0.0, sd=None, interval90=None, verdict=None, source="prior", nominal=0.0, prior=None, bounds=None
    )
    return found


def covariance(found: dict[str, Parameter]) -> Covariance:
    names = tuple(name for name, parameter in found.items() if parameter.verdict is not None)
    log = [isinstance(found[name].prior, LognormalPrior) for name in names]
    sds = [found[n].sd or 0.0 for n in names]
    sd = np.array([s / found[n].value if is_log else s for s, n, is_log in zip(sds, names, log, strict=True)])
    mixing = np.random.default_rng(3).normal(size=(len(names), len(names) + 20))
    mixing[0] = mixing[5] + 0.2 * mixing[0]
    mixing[1] = -mixing[2] + 0.1 * mixing[1]
    rho = correlations(mixing @ mixing.T)
    rows = tuple(tuple(row) for row in (rho * np.outer(sd, sd)).tolist())
    transform = {n: ("log" if is_log else "linear") for n, is_log in zip(names, log, strict=True)}
    return Covariance.model_validate({"names": names, "transform": transform, "matrix": rows})


def errors(scale: float) -> dict[str, float]:
    return {joint: scale * (1 + 0.3 * k) for k, joint in enumerate(JOINTS)}


def draft() -> TwinDraft:
    found = parameters()
    gauge = Gauge(
        name="scale",
        parameters=tuple(name for name in found if "armature" in name or "mass" in name),
        text="positions alone don't tell the scale of torque; the factor is the prior's, ± 25 %",
    )
    holdout = HoldoutErrors(
        mae=errors(0.004),
        rmse=errors(0.005),
        mae_mean=0.0064,
        rmse_mean=0.008,
        nominal_mae_mean=0.0251,
        nominal_rmse_mean=0.0312,
        per_log=(
            LogErrors(log="chirp_sweep", mae_mean=0.0071, rmse_mean=0.009),
            LogErrors(log="pick & place", mae_mean=0.005, rmse_mean=0.007),
        ),
    )
    train = JointErrors(mae=errors(0.003), rmse=errors(0.004), mae_mean=0.0048, rmse_mean=0.0064)
    return TwinDraft(
        robot="so101",
        fleet="desk",
        description=DescriptionRef(sha256="ab" * 32, href=None),
        engine=Engine(name="pybullet", version="3.2.7", timestep_s=0.001, gravity_m_s2=(0.0, 0.0, -9.81)),
        structure=Structure(friction="coulomb+viscous", controller="servo_duty", lag="delay", backlash=False),
        parameters=found,
        covariance=covariance(found),
        sensors={
            "joint/wrist_flex/position": SensorNoise(noise_sd=0.0004, quantum=0.0015, outlier_rate=0.0, drop_rate=None)
        },
        quality=Quality(
            grade="fair",
            holdout=holdout,
            train=train,
            windowed=WindowedErrors(window_s=2.0, rmse=errors(0.0045)),
            improvement=3.9,
            tip_rmse_mm=2.31,
            gauges=(gauge,),
            warnings=(WARNING, "log chirp_sweep: 0.4 s gap at 12.1 s"),
        ),
        provenance=DraftProvenance(
            recordings=("multisine", "chirp_sweep", "pick & place"),
            window=None,
            dataset_digest="sha256:" + "0c" * 32,
            seed=7,
            software="twincal 0.1.0",
        ),
    )


def overlay(log: str, phase: float, seconds: float = 60.0) -> Overlay:
    rng = np.random.default_rng(int(100 * phase) + 5)
    t = np.arange(0.0, seconds, 0.01)
    f = np.linspace(0.1, 0.8, len(JOINTS))
    w = 2 * np.pi * f[None, :] * (t[:, None] + phase)
    command = 0.8 * np.sin(w) + 0.25 * np.sin(3.1 * w)
    true = 0.79 * np.sin(w - 0.13) + 0.24 * np.sin(3.1 * w - 0.4)
    measured = true + 0.0008 * rng.normal(size=true.shape)
    measured[400:470] = np.nan
    measured[rng.random(measured.shape) < 0.01] = np.nan
    drift = 0.006 * np.cos(0.7 * w) * (1 + np.sin(t / 7))[:, None]
    command[:, 4] = np.nan
    return Overlay(log, t, JOINTS, measured, true + drift, true + 0.03 * np.sin(w + 1) + 0.012, command)


def parse(html: str) -> lxml.html.HtmlElement:
    page = lxml.html.document_fromstring(html)
    assert isinstance(page, lxml.html.HtmlElement)
    return page


def text_at(page: lxml.html.HtmlElement, path: str) -> str:
    found = page.xpath(path)
    assert isinstance(found, str)
    return found


def looks() -> Looks:
    t_s = np.linspace(0.1, 7.9, 24)
    grown = 0.004 * (1 - np.exp(-3 * t_s))[:, None] * np.arange(1, 6)
    grown[:, 4] = np.nan
    edges = np.linspace(-1.5, 1.5, 41)
    seconds = np.where(np.abs(edges[:-1]) < 0.6, 1.5, 0.0)
    excitation = tuple(
        Excitation(
            joint, (-1.5, 1.5) if k else None, edges, seconds, 0.4 * np.cos(edges[:-1]) * (seconds > 0), 1.25, 17 + k
        )
        for k, joint in enumerate(JOINTS)
    )
    plain: dict[str, str | bool] = {"friction": "coulomb+viscous", "lag": "delay", "backlash": False}
    return Looks(
        horizon=Horizon(JOINTS, 8.0, t_s, grown, 10.0 * grown),
        excitation=excitation,
        whiteness={"shoulder_pan": Whiteness(0.015, 12.3), HOSTILE: Whiteness(None, None)},
        confounded=(("joint/shoulder_pan/armature_kg_m2", "link/forearm/mass_kg", "link/upper_arm/mass_kg"),),
        structures=(
            StructureTried(plain, -5.1, 0.0, 0.0, True, "chosen: no other law pays"),
            StructureTried(
                plain | {"backlash": True}, -5.0, 0.011, 0.02, False, "saves 1.1 ± 2.0 %, which doesn't pay"
            ),
        ),
    )


@pytest.fixture(scope="module")
def data() -> ReportData:
    return ReportData(
        draft=draft(),
        acceptance=Acceptance(accepted=True, reason=REASON),
        nominal_name="the description with the prior's gains",
        overlays=(overlay("chirp_sweep", 0.0), overlay("pick & place", 1.7, 35.0)),
        train_logs=("multisine",),
        trials=48,
        seconds=95.2,
        looks=looks(),
    )


@pytest.fixture(scope="module")
def html(data: ReportData) -> str:
    return render_report(data)


@pytest.fixture(scope="module")
def page(html: str) -> lxml.html.HtmlElement:
    return parse(html)


def test_the_headline_gives_robot_acceptance_grade_and_both_errors(page: lxml.html.HtmlElement) -> None:
    assert text_at(page, "string(//h1)") == "so101"
    status = text_at(page, "string(//div[contains(@class, 'status')])")
    assert "Accepted" in status
    assert REASON in status
    tiles = text_at(page, "string(//section[@aria-label='Headline'])")
    assert "8.00 mrad" in tiles
    assert "nominal 31.2 mrad" in tiles
    assert "6.40 mrad" in tiles
    assert "nominal 25.1 mrad" in tiles
    assert "3.90 ×" in tiles
    assert "2.31 mm" in tiles
    assert "fair" in tiles


def test_warnings_come_before_every_figure(html: str) -> None:
    assert html.index("hysteresis is left over") < html.index("Hold-out RMSE, mean over joints")
    assert html.index("0.4 s gap at 12.1 s") < html.index("positions alone") < html.index('<section id="errors">')


def test_a_hostile_joint_name_is_text_and_nothing_else(html: str, page: lxml.html.HtmlElement) -> None:
    assert "<img" not in html
    assert "<b>here</b>" not in html
    assert not page.xpath("//img | //script | //iframe | //object | //embed | //link")
    assert not [name for e in page.iter() if isinstance(e.tag, str) for name in e.attrib if name.startswith("on")]
    assert HOSTILE in [heading.text_content() for heading in page.xpath("//section[@id='joints']/h3")]


def test_the_file_needs_nothing_beside_itself(page: lxml.html.HtmlElement, html: str) -> None:
    links = [value for e in page.iter() for name, value in e.attrib.items() if name.endswith(("href", "src"))]
    assert links
    assert all(link.startswith("#") for link in links)
    assert {link[1:] for link in links} <= set(page.xpath("//@id"))
    assert re.findall(r"url\((?!#)|@import", html) == []
    assert "matplotlib" not in html.lower()


def test_ids_are_unique_though_many_drawings_share_the_page(page: lxml.html.HtmlElement) -> None:
    ids = page.xpath("//@id")
    assert len(ids) == len(set(ids))


def test_equal_data_give_equal_bytes_even_from_two_threads_at_once(data: ReportData, html: str) -> None:
    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(render_report, (data, data))) == [html, html]


def test_the_file_stays_small(html: str) -> None:
    assert len(html.encode()) < 2_000_000


def test_each_joint_shows_its_worst_and_a_typical_log(page: lxml.html.HtmlElement) -> None:
    captions = [c.text_content() for c in page.xpath("//section[@id='joints']//figcaption")]
    assert len(captions) == 2 * len(JOINTS)
    assert len(page.xpath("//section[@id='joints']//svg[@class='plot']")) == 2 * len(JOINTS)
    assert sum(caption.startswith("Worst: ") for caption in captions) == len(JOINTS)


def test_every_parameter_is_there_with_unit_interval_verdict_and_bar(page: lxml.html.HtmlElement) -> None:
    rows = page.xpath("//table[@class='parameters']//tr[td]")
    assert len(rows) == 30
    assert len(page.xpath("//table[@class='parameters']//svg[@class='bar']")) == 30
    latency = next(row for row in rows if row.xpath("string(th/@title)") == "robot/command_latency_s").text_content()
    assert "command latency" in latency
    assert "0.02140 ± 0.00043" in latency
    assert "0.02070 … 0.02210" in latency
    assert "identified" in latency
    assert "1.0 % of the prior" in latency
    armature = next(r for r in rows if r.xpath("string(th/@title)") == "joint/shoulder_pan/armature_kg_m2")
    assert "kg·m²" in armature.text_content()
    assert "gauge “scale”" in armature.text_content()
    assert "velocity gain kd: 0 N·m·s/rad" in text_at(page, "string(//ul[@class='given'])")


def test_no_cell_holds_nan_though_the_measurement_has_gaps(page: lxml.html.HtmlElement) -> None:
    assert not re.search(r"\b(nan|inf|None)\b", page.text_content())
    assert NOT_KNOWN in text_at(page, "string(//section[@id='provenance']//table)")
    assert all("nan" not in d.lower() for d in page.xpath("//path/@d"))


def test_entangled_parameters_are_told_in_words(page: lxml.html.HtmlElement) -> None:
    told = text_at(page, "string(//section[@id='correlations']//table)")
    assert "one rises where the other falls" in told
    assert "they rise and fall together: the data know their ratio better than either" in told


def test_errors_are_drawn_and_told_against_the_time_since_a_run_s_start(page: lxml.html.HtmlElement) -> None:
    (section,) = page.xpath("//section[@id='horizon']")
    assert len(section.xpath(".//svg[@class='plot']")) == 1
    assert "runs of 8.0 s that begin at a measured state" in section.text_content()
    (row,) = section.xpath(".//tr[th='shoulder_lift']")
    last = row.xpath("td[last()]")[0]
    assert last.xpath("string(span)") == "8.00"
    assert last.xpath("string(small)") == "80.0"


def test_the_excitation_map_tells_where_each_joint_was_and_how_fast(page: lxml.html.HtmlElement) -> None:
    rows = page.xpath("//section[@id='excitation']//tbody/tr")
    assert len(rows) == len(JOINTS)
    assert "as far as it went" in rows[0].text_content()
    assert "limits" in rows[1].text_content()
    assert "38 %" in rows[1].text_content()
    assert "1.2 rad/s" in rows[1].text_content()
    assert "18 ×" in rows[1].text_content()
    assert len(rows[1].xpath(".//rect[@class='been']")) == 15


def test_laws_that_were_tried_stand_with_why_they_lost(page: lxml.html.HtmlElement) -> None:
    chosen, lost = page.xpath("//section[@id='structure']//tbody/tr")
    assert "✓" in chosen.text_content()
    assert "no backlash" in chosen.text_content()
    assert "✓" not in lost.text_content()
    assert "doesn't pay" in lost.text_content()
    assert "1.1 %" in lost.text_content()
    assert "± 2.0 %" in lost.text_content()


def test_what_is_left_over_stands_beside_motion_and_noise(page: lxml.html.HtmlElement) -> None:
    (row,) = page.xpath("//section[@id='errors']//tr[th='shoulder_pan'][td='mrad']")
    assert [cell.text_content() for cell in row.xpath("td[position() > last() - 2]")] == ["1.5 %", "12 ×"]


def test_what_is_known_only_together_is_told_in_words(page: lxml.html.HtmlElement) -> None:
    told = text_at(page, "string(//section[@id='cannot-tell']//ul)")
    assert "shoulder_pan · armature, forearm · mass and upper_arm · mass" in told


def test_a_twin_that_lost_says_so_with_its_reason(data: ReportData) -> None:
    refused = replace(data, acceptance=Acceptance(accepted=False, reason="the active version 3 is better"), overlays=())
    page = parse(render_report(refused))
    status = text_at(page, "string(//div[contains(@class, 'status')])")
    assert "Not accepted" in status
    assert "the active version 3 is better" in status
    assert "No measured position to draw." in page.text_content()


def test_a_nominal_twin_that_ran_away_is_called_diverged(data: ReportData) -> None:
    away = overlay("chirp_sweep", 0.0)
    nominal = away.nominal.copy()
    nominal[1000:] = 1e200
    nominal[2000:] = np.inf
    page = parse(render_report(replace(data, overlays=(replace(away, nominal=nominal),))))
    assert "nominal diverged" in text_at(page, "string(//section[@id='joints']//figcaption)")


def test_a_failed_fit_says_why_and_what_was_looked_at() -> None:
    html = render_failure("z1", "no command in <log>", ["joint2 never moves"], ["idle.csv"])
    page = parse(html)
    text = page.text_content()
    assert "No twin" in text
    assert "no command in <log>" in text
    assert "joint2 never moves" in text
    assert "idle.csv" in text


def test_parameters_are_grouped_by_joint_then_link_then_robot() -> None:
    groups = parameter_groups(draft())
    assert [group.place for group in groups] == ["joint"] * 5 + ["link"] * 2 + ["robot"]
    assert groups[2].owner == HOSTILE
    assert len(groups[4].given) == 1


def test_a_bar_marks_a_bound_only_where_it_is_in_reach() -> None:
    groups = parameter_groups(draft())
    by_label = {row.label: row.bar for row in groups[0].fitted}
    damping, armature = by_label["viscous damping"], by_label["armature"]
    assert damping is not None
    assert armature is not None
    assert damping.lower == damping.nominal == 5.0
    assert damping.upper is None
    assert armature.lower is armature.nominal is None
    assert 5.0 < armature.posterior[0] < armature.value < armature.posterior[1] < 215.0
