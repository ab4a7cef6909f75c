"""``appworld-mini``: our own short tasks for the real engine, small enough for a tiny policy."""
