"""Language models served by hosts for prompts and hosts for answers."""
