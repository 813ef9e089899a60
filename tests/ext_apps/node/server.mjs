// A server with an MCP App, made with the official SDKs. It is spoken to over stdio; the page is the first argument.
import { readFileSync } from "node:fs";

import { McpServer } from "@modelcontextprotocol/server";
import { StdioServerTransport } from "@modelcontextprotocol/server/stdio";
import { RESOURCE_MIME_TYPE, registerAppResource, registerAppTool } from "@modelcontextprotocol/ext-apps/server";

const page = readFileSync(process.argv[2], "utf-8");
const uri = "ui://view/page.html";
const server = new McpServer({ name: "dice", version: "1" });
let rolls = 0;

registerAppTool(
  server,
  "show_dice",
  { title: "Show dice", description: "Show the dice.", inputSchema: {}, _meta: { ui: { resourceUri: uri } } },
  async () => ({ content: [{ type: "text", text: "three" }] }),
);
registerAppTool(
  server,
  "roll_again",
  { description: "Roll.", inputSchema: {}, _meta: { ui: { resourceUri: uri, visibility: ["app"] } } },
  async () => ({ content: [{ type: "text", text: `roll ${++rolls}` }] }),
);
registerAppResource(server, "page", uri, { mimeType: RESOURCE_MIME_TYPE }, async () => ({
  contents: [{ uri, mimeType: RESOURCE_MIME_TYPE, text: page }],
}));
await server.connect(new StdioServerTransport());
