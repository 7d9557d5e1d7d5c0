"""A scripted tracker behind an MCP server on standard input and output, made with the `mcp` package.

The package checks arguments by the schemas of the real tools.
"""

import os
import sys
from typing import Any

import anyio
from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from scripted_tracker import answer, tools  # type: ignore[import-not-found]  # beside it


async def main(family: str) -> None:
    """Serve one client."""
    server: Server[Any, Any] = Server("scripted")

    async def list_tools() -> list[types.Tool]:
        return [types.Tool(**tool) for tool in tools(family)]

    async def call_tool(name: str, arguments: dict[str, Any]) -> list[types.TextContent]:
        return [types.TextContent(type="text", text=answer(family, name, arguments))]

    server.list_tools()(list_tools)  # type: ignore[no-untyped-call]  # the package has no type here
    server.call_tool()(call_tool)
    sys.stderr.write(f"serving {family} with {os.environ.get('TRACKER_TOKEN', 'no token')}\n")
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


anyio.run(main, os.environ["TRACKER_FAMILY"], backend="trio")
