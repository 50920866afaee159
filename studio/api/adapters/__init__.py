"""The same jobs for programs that speak another protocol: OpenAI's API and MCP."""
