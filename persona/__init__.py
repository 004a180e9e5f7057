"""One TOML file a persona; prompts are Markdown files under ``prompts/``."""
