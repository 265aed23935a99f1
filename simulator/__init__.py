"""The fleet on one clock: backtest, devices, and the demo."""
