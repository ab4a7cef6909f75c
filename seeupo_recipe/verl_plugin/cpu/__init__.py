"""verl on CPUs: a platform, FSDP2-on-gloo workers and a rollout backend, all through verl's registries."""
