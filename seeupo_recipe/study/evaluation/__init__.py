"""avg@k and pass@k of any model on any benchmark: a recipe's model, a local folder, or a chat endpoint."""
