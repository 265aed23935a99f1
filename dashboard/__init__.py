"""The screen: reads the history store and shows the fleet, one device and the rounds."""
