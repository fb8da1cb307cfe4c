"""Configuration: one file and a few environment variables, checked before anything else happens.

Theory of operation. A person's `config.yaml` becomes a `Config` or one ConfigError in plain words; there is
nothing in between, and no state. `schema` says what may be written, `known` which providers need no more than a
key, `document` reads YAML, `checking` compares the two, `loading` puts it together, and `resolved` is what the
rest of headrace sees. Secrets are named here and held nowhere.
"""

from headrace.config.loading import home_dir, load
from headrace.config.resolved import Config, ModelRef, ProviderConfig, parse_model
from headrace.config.schema import ModelConfig, Stall, Streaming

__all__ = [
    "Config",
    "ModelConfig",
    "ModelRef",
    "ProviderConfig",
    "Stall",
    "Streaming",
    "home_dir",
    "load",
    "parse_model",
]
