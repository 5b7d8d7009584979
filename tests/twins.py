"""A small twin for tests to publish, change and break."""

from __future__ import annotations

from datetime import UTC, datetime

from app.twin.document import (
    Covariance,
    DescriptionRef,
    DraftProvenance,
    Engine,
    HoldoutErrors,
    JointErrors,
    LogErrors,
    LognormalPrior,
    Parameter,
    Quality,
    SensorNoise,
    Structure,
    TwinDraft,
    WindowedErrors,
)

ARMATURE = "joint/elbow/armature_kg_m2"
CREATED = datetime(2026, 3, 1, 12, 30, 15, 250000, tzinfo=UTC)


def fitted(value: float) -> Parameter:
    return Parameter(
        value=value,
        sd=0.004,
        interval90=(0.203, 0.217),
        verdict="identified",
        source="fit",
        nominal=0.0,
        prior=LognormalPrior(lognormal=(-2.0, 1.0)),
        bounds=(1e-6, 10.0),
    )


def draft(value: float = 0.21, robot: str = "arm-07") -> TwinDraft:
    errors = {"elbow": 0.0021}
    return TwinDraft(
        robot=robot,
        fleet="arms",
        description=DescriptionRef(sha256="0" * 64, href=None),
        engine=Engine(name="pybullet", version="3.2.7", timestep_s=0.001, gravity_m_s2=(0.0, 0.0, -9.81)),
        structure=Structure(friction="coulomb+viscous", controller="pd", lag="delay", backlash=False),
        parameters={ARMATURE: fitted(value)},
        covariance=Covariance(names=(ARMATURE,), transform={ARMATURE: "log"}, matrix=((0.0004,),)),
        sensors={
            "joint/elbow/position": SensorNoise(noise_sd=1e-4, quantum=0.0, outlier_rate=0.0, drop_rate=None),
        },
        quality=Quality(
            grade="good",
            holdout=HoldoutErrors(
                mae=errors,
                rmse=errors,
                mae_mean=0.0021,
                rmse_mean=0.0021,
                nominal_mae_mean=0.05,
                nominal_rmse_mean=0.06,
                per_log=(LogErrors(log="a", mae_mean=0.0021, rmse_mean=0.0021),),
            ),
            train=JointErrors(mae=errors, rmse=errors, mae_mean=0.0021, rmse_mean=0.0021),
            windowed=WindowedErrors(window_s=2.0, rmse=errors),
            improvement=27.4,
            tip_rmse_mm=None,
            gauges=(),
            warnings=(),
        ),
        provenance=DraftProvenance(
            recordings=("a",), window=None, dataset_digest="sha256:" + "1" * 64, seed=0, software="twincal 0.1.0"
        ),
    )
