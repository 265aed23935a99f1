"""The fleet's model between its message and the mathematics: what is written is read bit for bit, whatever else is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fleetgp import features, inducing, placement
from fleetgp.errors import LocalError, PeerError
from fleetgp.features import Basis
from fleetgp.gp.aggregate import Belief
from fleetgp.scaling import Scaling
from fleetgp.schema import Channel, Covariate, Kernel, Schema
from fleetgp.wire import codec, knowledge
from fleetgp.wire.convert import to_tensor
from fleetgp.wire.knowledge import Published, Stamp
from fleetgp.wire.messages import FleetModel, Included, Tensor

Array = NDArray[np.float64]
LAW = settings(max_examples=60, deadline=None, derandomize=True)
KERNELS: tuple[Kernel, ...] = ("se", "matern32", "matern52")
STAMP = Stamp(at_ms=1_767_225_600_123, round=7, origin=5, basis=3)
INCLUDED = {"pump-1": Included(incarnation=3, sequence=9, factor=0.9375)}


def schema(channels: int = 2, covariates: int = 1, lags: int = 2, **more: Any) -> Schema:
    names = tuple(Channel(name=f"c{k}") for k in range(channels))
    return Schema(
        channels=names, covariates=tuple(Covariate(name=f"u{k}") for k in range(covariates)), lags=lags, **more
    )


CURVED = schema(inducing=5, kernel="matern32", phases=(86_400.0,))


def some(of: Schema, seed: int, is_placed: bool = True) -> Published:
    """What a fleet of this schema may know; with inducing inputs where the schema has any."""
    rng = np.random.default_rng(seed)
    shape = features.shape(of)
    K, D = len(of.inputs), len(placement.columns(shape))
    scaling = Scaling(rng.standard_normal(K), rng.uniform(0.01, 100.0, K))
    centres = rng.standard_normal((of.inducing, D)) if of.inducing else None
    shared = placement.place(of.kernel, shape, scaling, centres) if centres is not None and is_placed else None
    basis = Basis(shape, scaling, shared)
    Q, F = shape.channels, basis.size
    half = rng.standard_normal((Q, F, F))
    half = half @ half.transpose(0, 2, 1)
    belief = Belief(0.5 * (half + half.transpose(0, 2, 1)), rng.standard_normal((Q, F)))
    prior_var, deviation_var = rng.uniform(0.01, 5.0, (2, Q, F))
    return Published(basis, belief, prior_var, deviation_var, rng.uniform(0.1, 1.0, Q), 250.5, centres)


def through_the_wire(known: Published, of: Schema) -> Published:
    payload = codec.encode(knowledge.write(known, of, STAMP, INCLUDED))
    return knowledge.read(codec.decode(payload, FleetModel), of)


def arrays(value: Any) -> list[Any]:
    """All that a value is made of, in order."""
    if isinstance(value, tuple):
        return [one for item in value for one in arrays(item)]
    return [value]


@LAW
@given(
    st.integers(1, 3), st.integers(0, 2), st.integers(1, 3), st.sampled_from([0, 1, 8]), st.sampled_from(KERNELS),
    st.booleans(), st.integers(0, 99),
)  # fmt: skip
def test_what_is_written_is_read_bit_for_bit(
    channels: int, covariates: int, lags: int, size: int, kernel: Kernel, is_placed: bool, seed: int
) -> None:
    """Features of the basis included: both sides must come to the same numbers, or own terms are not taken out exactly."""
    of = schema(channels, covariates, lags, inducing=size, kernel=kernel, phases=(3600.0,) if seed % 2 else ())
    known = some(of, seed, is_placed)
    back = through_the_wire(known, of)
    assert len(arrays(back)) == len(arrays(known))
    for was, now in zip(arrays(known), arrays(back), strict=True):
        assert np.array_equal(was, now)
    inputs = np.random.default_rng(seed).standard_normal((4, known.basis.shape.inputs))
    assert np.array_equal(features.features(known.basis, inputs), features.features(back.basis, inputs))


def test_a_model_says_which_it_is_and_whose_knowledge_is_in_it() -> None:
    model = knowledge.write(some(CURVED, 1), CURVED, STAMP, INCLUDED)
    assert (model.at_ms, model.round, model.origin, model.basis) == tuple(STAMP)
    assert model.included == INCLUDED
    assert model.schema == CURVED


def test_an_agent_of_an_earlier_version_is_told_the_mean_deviation_of_channels() -> None:
    known = some(CURVED, 1)
    model = knowledge.write(known, CURVED, STAMP, {})
    shown = np.frombuffer(model.deviation_scale.data)
    np.testing.assert_allclose(shown, known.deviation_var.sum(axis=0) / 2, rtol=1e-15)


def test_a_model_of_an_earlier_version_has_one_deviation_for_all_channels_and_a_standard_prior() -> None:
    of = schema()
    known = some(of, 2)
    model = knowledge.write(known, of, STAMP, {})
    older = msgspec.structs.replace(model, prior_variance=None, deviation_variance=None)
    back = knowledge.read(older, of)
    np.testing.assert_array_equal(back.prior_var, np.ones_like(known.prior_var))
    np.testing.assert_array_equal(back.deviation_var[0], back.deviation_var[1])
    np.testing.assert_allclose(back.deviation_var[0], known.deviation_var.mean(axis=0), rtol=1e-15)


def test_inducing_inputs_of_an_agent_are_not_published() -> None:
    known = some(CURVED, 3)
    local = inducing.make("se", (0,), np.array([[12345.678]]), np.ones(1))
    model = knowledge.write(known._replace(basis=known.basis._replace(local=local)), CURVED, STAMP, {})
    assert model == knowledge.write(known, CURVED, STAMP, {})


def test_a_number_that_is_none_is_never_written() -> None:
    known = some(CURVED, 3)
    with pytest.raises(LocalError, match="finite"):
        knowledge.write(known._replace(noise_var=np.array([0.5, np.nan])), CURVED, STAMP, {})


# ---- what others may send


SOUND = knowledge.write(some(CURVED, 4), CURVED, STAMP, INCLUDED)
SHAPE = features.shape(CURVED)
Q, K, D, M = 2, 3, 5, CURVED.inducing
F = SHAPE.linear + M


def raw(*shape: int, value: float = 1.0) -> Tensor:
    """A tensor with any numbers, also those that an honest coordinator cannot send."""
    return Tensor(shape=shape, data=np.full(shape, value).astype("<f8").tobytes())


def changed(field: str, at: int, value: float) -> dict[str, Tensor]:
    """A field with one number replaced."""
    tensor: Tensor = getattr(SOUND, field)
    numbers = np.frombuffer(tensor.data).copy()
    numbers[at] = value
    return {field: Tensor(shape=tensor.shape, data=numbers.tobytes())}


HOSTILE: list[tuple[str, dict[str, Any], str]] = [
    *((f"NaN in {name}", changed(name, 0, np.nan), "finite") for name in (
        "centre", "scale", "precision", "shift", "noise_variance", "prior_variance", "deviation_variance", "inducing",
        "lengthscale", "centres")),
    *((f"infinity in {name}", changed(name, -1, -np.inf), "finite") for name in ("shift", "inducing", "centres")),
    *((f"zero in {name}", changed(name, 0, 0.0), "range") for name in (
        "scale", "noise_variance", "prior_variance", "deviation_variance", "lengthscale")),
    *((f"negative {name}", changed(name, 1, -1.0), "range") for name in (
        "scale", "noise_variance", "prior_variance", "deviation_variance", "lengthscale")),
    *((f"beyond all sense: {name}", changed(name, 0, 1e200), "range") for name in (
        "centre", "scale", "precision", "shift", "prior_variance", "inducing", "lengthscale", "centres")),
    ("a lengthscale next to nothing", changed("lengthscale", 0, 5e-324), "range"),
    ("frames below nothing", {"noise_frames": -1.0}, "range"),
    ("too few inducing inputs", {"inducing": raw(M - 1, D)}, "shape"),
    ("inducing inputs of other columns", {"inducing": raw(M, D - 1)}, "shape"),
    ("too few lengthscales", {"lengthscale": raw(D - 1)}, "shape"),
    ("lengthscales alone", {"inducing": None}, "shape"),
    ("inducing inputs alone", {"lengthscale": None}, "shape"),
    ("no inducing inputs, but their weights", {"inducing": None, "lengthscale": None, "columns": ()}, "shape"),
    ("no columns", {"columns": ()}, "range"),
    ("a column of an input less itself", {"columns": (0, 1, 2, 3, SHAPE.inputs)}, "range"),
    ("a column beyond all differences", {"columns": (0, 1, 2, 3, SHAPE.inputs * (SHAPE.inputs + 1))}, "range"),
    ("a negative column", {"columns": (0, 1, 2, 3, -1)}, "range"),
    ("an enormous column", {"columns": (0, 1, 2, 3, 2**62)}, "range"),
    ("more columns than any", {"columns": tuple(range(1000))}, "range"),
    ("centres of another shape", {"centres": raw(M, D + 1)}, "shape"),
    ("prior of another size", {"prior_variance": raw(Q, F - 1)}, "shape"),
    ("deviation of one channel", {"deviation_variance": raw(F)}, "shape"),
    ("precision in square form", {"precision": raw(Q, F, F)}, "shape"),
    ("bytes cut short", {"shift": Tensor(shape=(Q, F), data=b"\0" * 8)}, "shape"),
    ("an enormous shape", {"centres": Tensor(shape=(2**62, 2**62), data=b"")}, "shape"),
]  # fmt: skip


def test_the_sample_of_these_tests_is_sound() -> None:
    """Otherwise the refusals below would prove nothing."""
    assert knowledge.read(SOUND, CURVED).basis.size == F


@pytest.mark.parametrize(("changes", "code"), [h[1:] for h in HOSTILE], ids=[h[0] for h in HOSTILE])
def test_hostile_model_is_refused_by_name(changes: dict[str, Any], code: str) -> None:
    with pytest.raises(PeerError) as caught:
        knowledge.read(msgspec.structs.replace(SOUND, **changes), CURVED)
    assert caught.value.code == code


def test_inducing_inputs_for_a_schema_without_any_are_refused() -> None:
    of = schema(phases=(86_400.0,))
    with pytest.raises(PeerError) as caught:
        knowledge.read(SOUND, of)
    assert caught.value.code == "shape"


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    ("Z", "lengthscale"),
    [
        (np.zeros((M, D)), np.ones(D)),
        (np.repeat(np.arange(M - 2.0), [1, 3, 1])[:, None] * np.ones(D), np.full(D, 0.1)),
        (np.linspace(0.0, 1e-12, M)[:, None] * np.ones(D), np.ones(D)),
        (np.linspace(-1e33, 1e33, M)[:, None] * np.ones(D), np.full(D, 1e-33)),
        (np.linspace(-1.0, 1.0, M)[:, None] * np.ones(D), np.full(D, 1e33)),
    ],
    ids=["all the same", "some twice", "next to each other", "infinitely far apart", "one point to the kernel"],
)
def test_odd_inducing_inputs_make_a_sound_basis_all_the_same(kernel: Kernel, Z: Array, lengthscale: Array) -> None:
    """Features of finite size, whatever they stand for: never a factorisation that fails."""
    of = msgspec.structs.replace(CURVED, kernel=kernel)
    odd = msgspec.structs.replace(SOUND, inducing=to_tensor(Z), lengthscale=to_tensor(lengthscale))
    known = knowledge.read(odd, of)
    x = features.features(known.basis, np.random.default_rng(0).standard_normal((20, SHAPE.inputs)))
    # |F(x)|^2 <= k(x, x) = 1 before the prior's standard deviation, but for the rounding that the jitter leaves
    assert np.all(np.sum(x[:, SHAPE.linear :] ** 2, axis=1) <= features.PRIOR_SD["inducing"] ** 2 * (1 + 1e-6))


@LAW
@given(
    st.sampled_from(["inducing", "lengthscale", "centres", "precision", "prior_variance"]),
    st.integers(0, 10**6),
    st.floats(),
)
def test_no_number_whatever_raises_anything_but_peer_error(field: str, at: int, value: float) -> None:
    size = len(getattr(SOUND, field).data) // 8
    odd = msgspec.structs.replace(SOUND, **changed(field, at % size, value))
    codes, known = set(), None
    try:
        known = knowledge.read(odd, CURVED)
    except PeerError as err:
        codes.add(err.code)
    assert codes <= {"finite", "range"}
    assert known is None or all(np.all(np.isfinite(part)) for part in arrays(known) if isinstance(part, np.ndarray))
