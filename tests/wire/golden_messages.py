"""One message of each type, with every field set to something that is not its default: what the golden files hold."""

from __future__ import annotations

import struct

import msgspec

from fleetgp.schema import Channel, Covariate, Schema
from fleetgp.wire.messages import (
    AnomalyEvent,
    Bootstrap,
    ChannelPrediction,
    FleetModel,
    Gradient,
    Health,
    Included,
    Message,
    Prediction,
    RoundNotice,
    Status,
    Summary,
    Tensor,
    Tuning,
)

AT_MS = 1_767_225_600_123  # 2026-01-01T00:00:00.123Z


def tensor(*shape: int, numbers: tuple[float, ...]) -> Tensor:
    """A tensor whose bytes are made by the standard library, not by the code under test."""
    return Tensor(shape=shape, data=struct.pack(f"<{len(numbers)}d", *numbers))


SCHEMA = Schema(
    channels=(
        Channel(name="temperature", unit="°C", topic="sensors/pump-1", field="t"),
        Channel(name="PM2.5", transform="log1p"),
    ),
    covariates=(Covariate(name="heating", unit="%", known_ahead=True),),
    interval_s=0.5,
    lags=3,
)

STATUS = Status(
    at_ms=AT_MS,
    name="pump-1",
    role="agent",
    is_online=True,
    instance="7f3a",
    started_ms=AT_MS - 1000,
    state="federated",
    software="0.1.0",
    host="pi-7",
    basis=2,
    round=12,
    schema=SCHEMA,
    note='says "hello"\n',
)

PREDICTION = Prediction(
    at_ms=AT_MS,
    agent="pump-1",
    sequence=4711,
    channels={
        "temperature": ChannelPrediction(
            mean=20.5, low=19.0, high=22.0, observed=20.25, z=-0.25, scale=0.75, degrees=4.0
        ),
        "PM2.5": ChannelPrediction(mean=35.0, low=30.0, high=41.5, scale=0.125, degrees=30.0),
    },
    score=1.5,
    threshold=8.0,
    is_alarmed=True,
    basis=2,
    round=12,
)

# As predictions were before they told their law.
PREDICTION_V1 = msgspec.structs.replace(
    PREDICTION,
    channels={name: msgspec.structs.replace(law, scale=0.0, degrees=0.0) for name, law in PREDICTION.channels.items()},
)

EVENT = AnomalyEvent(
    at_ms=AT_MS,
    agent="pump-1",
    event_id="pump-1-4700",
    state="closed",
    start_ms=AT_MS - 9000,
    end_ms=AT_MS - 500,
    frames=17,
    peak_score=11.25,
    peak_ms=AT_MS - 4000,
    blame={"temperature": 0.75, "PM2.5": 0.25},
    note="stuck",
)

HEALTH = Health(
    at_ms=AT_MS,
    name="bridge",
    role="bridge",
    instance="01",
    figures={"rss_mb": 31.5, "inbox_depth": 0.0},
    dropped={"syntax": 3},
    note="ok",
)

ROUND = RoundNotice(
    at_ms=AT_MS,
    round=12,
    state="closed",
    basis=2,
    deadline_ms=AT_MS + 5000,
    answered=("pump-1", "pump-2"),
    missing=("pump-3",),
    included=("pump-1", "pump-2", "pump-4"),
    bytes_received=4096,
    bytes_sent=2048,
    seconds=0.125,
    note="one late",
)

BOOTSTRAP = Bootstrap(
    at_ms=AT_MS,
    agent="pump-1",
    incarnation=3,
    sequence=8,
    schema=SCHEMA,
    count=tensor(3, numbers=(100.0, 90.0, 100.0)),
    mean=tensor(3, numbers=(20.5, 3.25, -0.5)),
    centred_square_sum=tensor(3, numbers=(12.0, 0.125, 1e-300)),
)

SUMMARY = Summary(
    at_ms=AT_MS,
    agent="pump-1",
    incarnation=3,
    sequence=9,
    round=12,
    origin=5,
    basis=2,
    signature="0.5s x3 | temperature:identity",
    precision=tensor(2, 3, numbers=(2.0, -0.5, 3.0, 4.0, 0.0, 1e300)),
    shift=tensor(2, 2, numbers=(1.0, -1.0, 0.1, -0.0)),
    count=tensor(2, numbers=(100.0, 99.5)),
    noise_variance=tensor(2, numbers=(0.25, 0.5)),
)

MODEL = FleetModel(
    at_ms=AT_MS,
    round=12,
    origin=5,
    basis=2,
    schema=SCHEMA,
    centre=tensor(3, numbers=(20.0, 3.0, 0.0)),
    scale=tensor(3, numbers=(2.0, 0.5, 1.0)),
    precision=tensor(2, 3, numbers=(3.0, -0.5, 4.0, 5.0, 0.0, 6.0)),
    shift=tensor(2, 2, numbers=(1.0, -1.0, 0.1, 0.0)),
    deviation_scale=tensor(2, numbers=(0.5, 0.25)),
    noise_variance=tensor(2, numbers=(0.25, 0.5)),
    included={"pump-1": Included(incarnation=3, sequence=9, factor=0.9375)},
)

# ---- the same, with what was added to the form since: every new field, not at its default

HEATING_B = Covariate(
    name="heating", unit="%", transform="log1p", topic="plant/boiler", field="power", known_ahead=True
)
SCHEMA_B = msgspec.structs.replace(
    SCHEMA, covariates=(HEATING_B,), phases=(86_400.0, 604_800.0), harmonics=2, inducing=2, kernel="matern52"
)
STATUS_B = msgspec.structs.replace(STATUS, schema=SCHEMA_B)
BOOTSTRAP_B = msgspec.structs.replace(BOOTSTRAP, schema=SCHEMA_B)
SUMMARY_B = msgspec.structs.replace(
    SUMMARY,
    deviation_square=tensor(2, 7, numbers=tuple(k / 8 for k in range(14))),
    cluster_count=tensor(2, numbers=(12.0, 0.0)),
    cluster_sum=tensor(2, 3, numbers=(6.0, -3.0, 1.5, 0.0, 0.0, 0.0)),
)
MODEL_B = msgspec.structs.replace(
    MODEL,
    schema=SCHEMA_B,
    noise_frames=250.5,
    prior_variance=tensor(2, 2, numbers=(1.0, 0.5, 2.0, 0.25)),
    deviation_variance=tensor(2, 2, numbers=(0.5, 0.0625, 0.5, 0.4375)),
    inducing=tensor(2, 3, numbers=(20.0, 3.0, 0.5, 22.0, 2.5, -0.5)),
    lengthscale=tensor(3, numbers=(2.5, 0.75, 1.0)),
    columns=(9, 10, 8),
    centres=tensor(2, 3, numbers=(0.0, 0.0, 0.5, 1.0, -1.0, -0.5)),
)

STATUS_C = msgspec.structs.replace(STATUS_B, settings={"agent.topic": "sensors/pump-1", "agent.alarm_score": 7.5})
PREDICTION_C = msgspec.structs.replace(PREDICTION, log_density=-2.5)
PREDICTION_D = msgspec.structs.replace(
    PREDICTION_C,
    channels={
        name: msgspec.structs.replace(law, layers=(20.25, 0.125, -0.0625, 0.1875), pull=0.5)
        for name, law in PREDICTION.channels.items()
    },
)

ROUND_B = msgspec.structs.replace(ROUND, gain=0.03125)

TUNING = Tuning(
    at_ms=AT_MS,
    origin=5,
    basis=2,
    step=14,
    began=12,
    asked=("pump-1", "pump-2"),
    is_back=True,
    values={
        "inducing": tensor(2, 1, numbers=(20.0, 22.5)),
        "log_lengthscale": tensor(1, numbers=(0.75,)),
    },
    columns=(8,),
    precision=tensor(2, 3, numbers=(3.0, -0.5, 4.0, 5.0, 0.0, 6.0)),
    shift=tensor(2, 2, numbers=(1.0, -1.0, 0.1, 0.0)),
    included={"pump-1": Included(incarnation=3, sequence=9, factor=1.0)},
)

GRADIENT = Gradient(
    at_ms=AT_MS,
    agent="pump-1",
    incarnation=3,
    sequence=10,
    origin=5,
    step=14,
    precision=tensor(2, 3, numbers=(2.0, -0.5, 3.0, 4.0, 0.0, 1e300)),
    shift=tensor(2, 2, numbers=(1.0, -1.0, 0.1, -0.0)),
    constant=-812.5,
    count=tensor(2, numbers=(512.0, 511.0)),
    log_prior=-0.5,
    slopes={"inducing": tensor(2, 1, numbers=(0.25, -4.0)), "log_lengthscale": tensor(1, numbers=(12.5,))},
    held_out=-256.5,
    held_out_count=250.0,
    loss=0.125,
    seconds=0.0625,
)

SUMMARY_C = msgspec.structs.replace(SUMMARY_B, has_deviation=False)
SCHEMA_C = msgspec.structs.replace(SCHEMA_B, mixing="ilmm", position="heating", ranks=(1, 2, 0), inducing=4)
STATUS_D = msgspec.structs.replace(STATUS_C, schema=SCHEMA_C)
BOOTSTRAP_C = msgspec.structs.replace(BOOTSTRAP_B, schema=SCHEMA_C, has_summary=False)
MODEL_C = msgspec.structs.replace(
    MODEL_B,
    schema=SCHEMA_C,
    loadings=tensor(2, 1, numbers=(0.75, -0.25)),
    log_phi=tensor(numbers=(-1.5,)),
    log_lengthscale=tensor(1, numbers=(0.125,)),
)
SCHEMA_D = msgspec.structs.replace(
    SCHEMA_C, covariates=(Covariate(name="heating", known_ahead=True),), position_period=360.0
)
STATUS_E = msgspec.structs.replace(STATUS_D, schema=SCHEMA_D)
BOOTSTRAP_D = msgspec.structs.replace(BOOTSTRAP_C, schema=SCHEMA_D)
MODEL_D = msgspec.structs.replace(MODEL_C, schema=SCHEMA_D)
GRADIENT_B = msgspec.structs.replace(GRADIENT, has_deviation=False)

# Golden file -> the message in it. Files are never edited, only added: a new form is a new file, under another letter.
# Written today byte for byte so, and read:
GOLDEN: dict[str, Message] = {
    "status-v1e.json": STATUS_E,
    "prediction-v1d.json": PREDICTION_D,
    "event-v1.json": EVENT,
    "health-v1.json": HEALTH,
    "round-v1b.json": ROUND_B,
    "bootstrap-v1d.bin": BOOTSTRAP_D,
    "summary-v1c.bin": SUMMARY_C,
    "model-v1d.bin": MODEL_D,
    "tuning-v1.bin": TUNING,
    "gradient-v1b.bin": GRADIENT_B,
}
# Golden file -> what it means, of messages that are written with more fields today: read as then, never written again.
READ_ONLY: dict[str, Message] = {
    "status-v1.json": STATUS,
    "status-v1b.json": STATUS_B,
    "status-v1c.json": STATUS_C,
    "status-v1d.json": STATUS_D,
    "prediction-v1.json": PREDICTION_V1,
    "prediction-v1b.json": PREDICTION,
    "prediction-v1c.json": PREDICTION_C,
    "round-v1.json": ROUND,
    "bootstrap-v1.bin": BOOTSTRAP,
    "bootstrap-v1b.bin": BOOTSTRAP_B,
    "bootstrap-v1c.bin": BOOTSTRAP_C,
    "summary-v1.bin": SUMMARY,
    "summary-v1b.bin": SUMMARY_B,
    "model-v1.bin": MODEL,
    "model-v1b.bin": MODEL_B,
    "model-v1c.bin": MODEL_C,
    "gradient-v1.bin": GRADIENT,
}
