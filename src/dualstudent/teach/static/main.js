// Keys and buttons; every one of them does what the other does.
import { find } from "./dom.js";
import { post } from "./api.js";
import { isTyping, placeOf } from "./keys.js";
import * as answers from "./answers.js";
import * as check from "./check.js";
import * as label from "./label.js";
import * as panel from "./panel.js";
import { complain, poll, state, update } from "./store.js";

const tabs = [find("tab-label"), find("tab-classes")];
const answer = (...what) => (check.isOpen() ? check.answer(...what) : label.answer(...what));

function openView(tab) {
  for (const each of tabs) {
    const chosen = each === tab;
    each.setAttribute("aria-selected", String(chosen));
    each.tabIndex = chosen ? 0 : -1;
    find(each.getAttribute("aria-controls")).hidden = !chosen;
  }
  if (tab === tabs[1]) check.open();
  else label.restart();
  answers.showFor(check.isOpen());
}

async function undo() {
  await label.undo();
  if (check.isOpen()) await check.open();
}

async function addClass(event) {
  event.preventDefault();
  const input = find("class-name"), name = input.value.trim();
  if (!name) return;
  try {
    if (!state.classes.some((each) => each.name === name)) update(await post("classes", { name }));
    input.value = "";
    answer(name);
    input.blur();
    find("stage").focus({ preventScroll: true });
  } catch (error) {
    complain(error);
  }
}

const commands = {
  " ": () => answer("", "skipped"),
  "/": () => answer("", "not sure"),
  "-": () => answer("", "none of these"),
  Backspace: undo,
  Enter: () => label.zoom(),
  ".": () => label.toggleThinking(),
  ",": () => label.toggleGrid(),
  "+": () => {
    if (check.isOpen()) check.choose();
    find("class-name").focus();
  },
  "?": () => find("help").showModal(),
};

function press(event) {
  if (find("help").open || !state) return;
  if ((event.ctrlKey || event.metaKey) && event.key === "z" && !isTyping(event)) {
    event.preventDefault();
    undo();
    return;
  }
  if (isTyping(event)) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
  const onControl = event.target.matches("button, a, summary, input[type=checkbox], input[type=file]");
  if (onControl && (event.key === " " || event.key === "Enter")) return; // these press it
  const place = placeOf(event.key);
  if (place >= 0 && place < state.classes.length) answer(state.classes[place].name);
  else if (event.key in commands) commands[event.key]();
  else if (!label.moveZoomed(event.key)) return;
  event.preventDefault();
}

document.addEventListener("keydown", press);
for (const tab of tabs) {
  tab.onclick = () => openView(tab);
  tab.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
    const other = tabs.find((each) => each !== tab);
    openView(other);
    other.focus();
  });
}
find("single").onclick = () => label.setGrid(false);
find("grid").onclick = () => label.setGrid(true);
find("thinks").onchange = label.showThinking;
find("filter").onchange = label.restart;
find("skip").onclick = commands[" "];
find("not-sure").onclick = commands["/"];
find("none").onclick = commands["-"];
find("undo").onclick = undo;
find("zoom").onclick = label.zoom;
find("help-open").onclick = commands["?"];
find("new-class").addEventListener("submit", addClass);
answers.begin(answer);
panel.begin();
poll(label.refill);
