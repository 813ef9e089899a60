// A host: connects to the broker, calls the tool that has a page, shows the page, and lets it speak to the broker.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { AppBridge, PostMessageTransport, getToolUiResourceUri } from "@modelcontextprotocol/ext-apps/app-bridge";

const said = (globalThis.said = {});
const url = new URL(new URLSearchParams(location.search).get("url"));
const extensions = { "io.modelcontextprotocol/ui": { mimeTypes: ["text/html;profile=mcp-app"] } };

async function run() {
  const client = new Client({ name: "host", version: "1" }, { capabilities: { extensions } });
  await client.connect(new StreamableHTTPClientTransport(url));
  said.declared = client.getServerCapabilities().extensions;
  const { tools } = await client.listTools();
  said.tools = tools.map((tool) => tool.name);
  const tool = tools.find((one) => one.name.endsWith("show_dice"));
  said.uri = getToolUiResourceUri(tool);
  const { contents } = await client.readResource({ uri: said.uri });
  const frame = document.createElement("iframe");
  frame.sandbox = "allow-scripts";
  document.body.append(frame);
  const bridge = new AppBridge(client, { name: "host", version: "1" }, { serverTools: {}, logging: {} });
  bridge.oninitialized = async () => {
    await bridge.sendToolInput({ arguments: {} });
    await bridge.sendToolResult(await client.callTool({ name: tool.name, arguments: {} }));
  };
  bridge.onloggingmessage = ({ data }) => (said.shown = data);
  await bridge.connect(new PostMessageTransport(frame.contentWindow, frame.contentWindow));
  frame.srcdoc = contents[0].text;
}

run().catch((error) => (said.failed = String(error)));
