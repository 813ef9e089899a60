// Colours of states. The word always stands beside it.

const TONES = {
  good: ["up", "ready", "running", "serving", "open", "listening"],
  warn: ["starting", "restarting", "tried", "draining", "parked", "waits for client", "stopping", "leaving", "not ready", "waiting to restart"],
  bad: ["down", "failed", "crashed", "hangs", "hung", "lost"],
};

const found = new Map(Object.entries(TONES).flatMap(([tone, states]) => states.map((state) => [state, tone])));

export function toneOf(state) {
  return found.get(String(state).toLowerCase()) ?? "idle";
}
