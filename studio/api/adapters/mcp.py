"""`/mcp`: the studio's tools for language models, over the Model Context Protocol's streamable HTTP.

The server is stateless: each request is answered as JSON, without sessions that a restart could lose, and is
authenticated like any other. Gradio's own MCP server would offer every handler of the page, to everybody.
Not here: the tools (mcp_tools.py), which are imported by the first request, because the protocol's package takes a
second that the page should not wait for.
"""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from studio.address import name_server
from studio.api.visitor import Visitor

router = APIRouter(include_in_schema=False)


@router.post("/mcp")
def answer_mcp(request: Request, visit: Visitor) -> Response:
    """Answers one message of the protocol."""
    from studio.api.adapters.mcp_tools import McpResponse, make_server

    return McpResponse(make_server(visit, base_url=name_server(request)))


@router.get("/mcp")
@router.delete("/mcp")
def refuse_stream() -> Response:
    """Refuses a stream: the protocol answers 405 where there are neither streams nor sessions."""
    return Response(status_code=405, headers={"Allow": "POST"})
