"""The providers headrace knows by name: data, to be read beside each provider's own documentation.

`READY_MADE` holds what makes a provider usable once its key is exported. The keys are written as in the file,
so an entry of a user and an entry here are the same kind of thing, and the user's keys win.
How a key is sent follows from the protocol unless `auth` says otherwise.

`SIGN_IN` holds names people bring along from programs that sign in for them. headrace has no sign-in; each name
leads to what can be used instead.
"""

from collections.abc import Mapping
from typing import Final

from headrace.config.schema import ProviderEntry

READY_MADE: Final[Mapping[str, ProviderEntry]] = {
    # OpenAI's models of today refuse tools together with reasoning in chat completions, also where the reasoning
    # is merely their default: "use /v1/responses". Servers that imitate OpenAI know chat completions best.
    "openai": ProviderEntry(
        protocol="responses",
        base_url="https://api.openai.com/v1",
        api_key_env="OPENAI_API_KEY",
        auth="bearer",
    ),
    "anthropic": ProviderEntry(
        protocol="messages",
        base_url="https://api.anthropic.com/v1",
        api_key_env="ANTHROPIC_API_KEY",
        auth="x-api-key",
        headers={"anthropic-version": "2023-06-01"},
    ),
    "openrouter": ProviderEntry(
        protocol="chat_completions",
        base_url="https://openrouter.ai/api/v1",
        api_key_env="OPENROUTER_API_KEY",
        auth="bearer",
    ),
    "gemini": ProviderEntry(
        protocol="chat_completions",
        base_url="https://generativelanguage.googleapis.com/v1beta/openai",
        api_key_env="GEMINI_API_KEY",
        auth="bearer",
    ),
    "deepseek": ProviderEntry(
        protocol="chat_completions",
        base_url="https://api.deepseek.com",
        api_key_env="DEEPSEEK_API_KEY",
        auth="bearer",
    ),
    "mistral": ProviderEntry(
        protocol="chat_completions",
        base_url="https://api.mistral.ai/v1",
        api_key_env="MISTRAL_API_KEY",
        auth="bearer",
    ),
    "groq": ProviderEntry(
        protocol="chat_completions",
        base_url="https://api.groq.com/openai/v1",
        api_key_env="GROQ_API_KEY",
        auth="bearer",
    ),
    "xai": ProviderEntry(
        protocol="chat_completions",
        base_url="https://api.x.ai/v1",
        api_key_env="XAI_API_KEY",
        auth="bearer",
    ),
    # Servers on this machine. Their addresses are the ones they listen on unless told otherwise.
    "ollama": ProviderEntry(protocol="chat_completions", base_url="http://127.0.0.1:11434/v1", auth="none"),
    "lmstudio": ProviderEntry(protocol="chat_completions", base_url="http://127.0.0.1:1234/v1", auth="none"),
    "llamacpp": ProviderEntry(protocol="chat_completions", base_url="http://127.0.0.1:8080/v1", auth="none"),
    "vllm": ProviderEntry(protocol="chat_completions", base_url="http://127.0.0.1:8000/v1", auth="none"),
}

_CODEX = "signs in with a ChatGPT account; use `openai` with OPENAI_API_KEY"
_COPILOT = (
    "signs in with a GitHub account; use `openai` with OPENAI_API_KEY or `openrouter` with OPENROUTER_API_KEY"
)
_CLAUDE = "signs in with a Claude account; use `anthropic` with ANTHROPIC_API_KEY"
_QWEN = "signs in with a Qwen account; use `openrouter` with OPENROUTER_API_KEY, or a Qwen model in `ollama`"
_GEMINI = "signs in with a Google account; use `gemini` with GEMINI_API_KEY"
_NOUS = "signs in with a Nous account; use `openrouter` with OPENROUTER_API_KEY"
_BEDROCK = "signs requests for an AWS account; use `anthropic` with ANTHROPIC_API_KEY or `openrouter`"
_AZURE = (
    "signs in with Microsoft Entra; configure your resource under `providers` with its base_url and api_key_env,"
    " or use `openai` with OPENAI_API_KEY"
)
_GROK = "signs in with a Grok account; use `xai` with XAI_API_KEY"

SIGN_IN: Final[Mapping[str, str]] = {
    "openai-codex": _CODEX,
    "codex": _CODEX,
    "chatgpt": _CODEX,
    "github-copilot": _COPILOT,
    "copilot": _COPILOT,
    "claude-code": _CLAUDE,
    "claude-max": _CLAUDE,
    "claude-pro": _CLAUDE,
    "qwen-oauth": _QWEN,
    "qwen-code": _QWEN,
    "gemini-cli": _GEMINI,
    "vertex": _GEMINI,
    "vertex-ai": _GEMINI,
    "nous-portal": _NOUS,
    "nous": _NOUS,
    "bedrock": _BEDROCK,
    "azure-ad": _AZURE,
    "xai-oauth": _GROK,
}
