"""The agent: learns one device's streams, predicts, and says what is odd."""
