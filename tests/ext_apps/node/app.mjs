// The app: shows the result of its tool, and then calls another tool of its own server, by the bare name.
import { App } from "@modelcontextprotocol/ext-apps/app-with-deps";

const app = new App({ name: "dice", version: "1" }, {});
const shown = document.getElementById("shown");
app.ontoolresult = async (result) => {
  shown.textContent = result.content[0].text;
  const again = await app.callServerTool({ name: "roll_again", arguments: {} });
  shown.textContent += `, then ${again.content[0].text}`;
  await app.sendLog({ level: "info", data: document.body.innerText.trim() });
};
await app.connect();
