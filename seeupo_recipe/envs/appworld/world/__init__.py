"""The world side: runs on the interpreter of ``.venv-appworld`` only, never inside the training process."""
