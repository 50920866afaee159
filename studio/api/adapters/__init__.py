"""Adapters that offer the same jobs under other protocols: OpenAI's API and MCP."""
