"""gpytorch's peers of section 4: their law is what gpytorch says it is, and they learn and stop as told. Skipped where it is not."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.section4_data import Device

pytest.importorskip("gpytorch", reason="no gpytorch here: pip install -c constraints.txt -e '.[peers]'")
torch = pytest.importorskip("torch")

from benchmarks import section4_peers as peers  # noqa: E402


@pytest.mark.parametrize("peer", peers.PEERS)
def test_a_peers_law_has_gpytorchs_variances_and_channels_go_together_only_where_latents_are_mixed(peer: str) -> None:
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    model, likelihood = peers.made(peer, inducing=5)
    X = torch.tensor([[0.5], [3.0], [7.0]])
    with torch.no_grad():
        model.train()
        model(X)  # where variational parameters get their first values
        model.eval()
        likelihood.eval()
        law = likelihood(model(X))
        mean, cov = peers.foreseen(model, likelihood, X)
        signal = peers.signal(model)
        np.testing.assert_allclose(mean, law.mean.numpy())
        np.testing.assert_allclose(np.diagonal(cov, axis1=1, axis2=2), law.variance.numpy(), rtol=1e-10)
    # the first law is the prior: of one frame the signal's covariance, and the noise
    np.testing.assert_allclose(cov[0], signal + 0.05**2 * np.eye(4), atol=2e-3)
    assert (np.max(np.abs(cov[0] - np.diag(np.diag(cov[0])))) < 1e-9) == (peer == "svgp")


@pytest.mark.parametrize("peer", peers.PEERS)
def test_a_peer_comes_to_a_plain_function(peer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four multiples of one sine, without noise, after 80 steps."""
    monkeypatch.setattr(peers, "MOST_STEPS", 80)
    x = np.linspace(0, 10, 12)
    truth = np.sin(x)[:, None] * np.array([1.0, -1.0, 0.5, 0.8])
    loadings = np.zeros((4, 2))
    told = peers.fit(peer, Device(x, truth, x, truth, loadings, loadings, loadings), 0, rate=0.1)
    assert np.sqrt(np.mean((told.law[0] - truth) ** 2)) < 0.2
    assert told.steps == 80
    assert told.covariance.shape == (4, 4)


def test_steps_end_when_two_windows_are_alike_or_there_were_too_many() -> None:
    """A climb that is level after 120 steps ends with the first two whole windows there; one that never is, at the limit."""
    place = iter(range(10_000))
    assert len(list(peers.until_still(lambda: min(next(place), 120) - 500.0))) == 250
    assert len(list(peers.until_still(lambda: 1.01 ** next(place)))) == peers.MOST_STEPS
