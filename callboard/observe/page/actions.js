// What an operator may do, where the server lets operators act: each needs a second click, and is in the server's log.

import { make, write } from "./table.js";

const SURE = 4000; // milliseconds in which the second click counts

const LABELS = { restart: "Restart", try: "Try now", refresh: "Read lists again", approve: "Approve", approve_call: "Approve", deny_call: "Deny", disconnect: "Disconnect" };

let allowed = [];

export function allow(actions) {
  allowed = actions ?? [];
}

// Buttons for what may be done to one server or client; none if nothing may.
export function buttons(actions, subject) {
  const said = make("span", { class: "quiet", role: "status" });
  const made = actions.filter((one) => allowed.includes(one)).map((one) => button(one, subject, said));
  return made.length ? [make("div", { class: "actions" }, ...made, said)] : [];
}

function button(action, subject, said) {
  const label = LABELS[action];
  const made = make("button", { type: "button", text: label });
  let timer = 0;
  const rest = () => {
    clearTimeout(timer);
    timer = 0;
    write(made, label);
    made.classList.remove("sure");
  };
  made.addEventListener("click", async () => {
    if (!timer) {
      write(made, `${label}: sure?`);
      made.classList.add("sure");
      timer = setTimeout(rest, SURE);
      return;
    }
    rest();
    made.disabled = true;
    write(said, await post(action, subject));
    made.disabled = false;
  });
  return made;
}

// The header is one that pages of others cannot set.
async function post(action, subject) {
  try {
    const body = JSON.stringify({ action, subject });
    const headers = { "content-type": "application/json", "x-callboard": "1" };
    const answer = await fetch(`${location.origin}${location.pathname}api/actions`, { method: "POST", headers, body });
    return answer.ok ? "done" : `refused: ${(await answer.text()).trim()}`;
  } catch {
    return "the server cannot be reached";
  }
}
