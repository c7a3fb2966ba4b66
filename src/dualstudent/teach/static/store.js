// What the program says; the page shows nothing as saved that is not in here.
import { get, Refused } from "./api.js";
import { find } from "./dom.js";

const listeners = [];
export let state = null;

export function listen(listener) {
  listeners.push(listener);
}

export function update(found) {
  if (!found || (state && found.changes < state.changes)) return;
  state = found;
  for (const listener of listeners) listener(state);
}

export function warn(text) {
  const line = find("trouble");
  if (line.textContent !== text) line.textContent = text; // said once to those who listen
  line.hidden = false;
}

export function complain(error) {
  warn(error instanceof Refused ? error.message
    : "The program cannot be reached. Every label that was shown as saved is saved. "
      + "Start “dualstudent teach” again and open its new address.");
}

export function relieve() {
  if (!state?.trouble) find("trouble").hidden = true;
}

export async function poll(afterwards) {
  try {
    update(await get(`state?since=${state?.changes ?? -1}`));
    if (find("trouble").textContent.startsWith("The program cannot")) relieve();
  } catch (error) {
    complain(error);
  }
  afterwards();
  setTimeout(() => poll(afterwards), document.hidden ? 4000 : 700);
}
