"""SeeUPO for stock verl 0.9.1.

verl loads this module in every process through the ``verl.plugins`` entry point. It stays light: it
registers the CPU platform and leaves the rest to hooks that run once the verl module they extend has
been imported. verl logs a plugin that fails to load at debug level only, so :func:`assert_ready` checks
at start-up what must be in place.
"""

import importlib.metadata

import wrapt

VERL_VERSION = "0.9.1"


def _install() -> None:
    here = __name__
    hooks = {
        "verl.plugin.platform.platform_manager": f"{here}.cpu.platform:register",
        "verl.trainer.ppo.v1.trainer_sync": f"{here}.registration:register_trainers",
        "verl.workers.rollout.replica": f"{here}.registration:register_replica",
        "verl.workers.rollout.base": f"{here}.registration:register_rollout",
    }
    for module, hook in hooks.items():
        wrapt.register_post_import_hook(hook, module)


def check_version() -> None:
    """Refuse any verl but the one that this module was written against.

    Raises:
        RuntimeError: With the version found and the command that installs the right one.
    """
    found = importlib.metadata.version("verl")
    if found != VERL_VERSION:
        raise RuntimeError(f"seeupo extends verl {VERL_VERSION}, found {found}: pip install verl=={VERL_VERSION}")


def assert_ready(device: str) -> None:
    """Check that the plugin is loaded and that verl runs on the platform of ``trainer.device``.

    Raises:
        RuntimeError: With what is missing and what to do.
    """
    from verl.plugin.platform import get_platform
    from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY

    check_version()
    found = get_platform().device_name
    if found != device:
        raise RuntimeError(
            f"trainer.device={device}, but verl chose platform {found!r}: "
            f"set VERL_PLATFORM={device if device == 'cpu' else 'nvidia'} in the environment"
        )
    if "seeupo" not in TRAINER_REGISTRY:
        raise RuntimeError(
            "the seeupo plugin is not loaded: install the package (pip install -e .), and leave "
            "VERL_USE_EXTERNAL_PLUGINS unset or include seeupo in it"
        )


_install()
