// The view in which mistakes are corrected in bulk: doubtful labels, and each class.
import { showFor } from "./answers.js";
import { get, post } from "./api.js";
import { count, find, make, percent } from "./dom.js";
import { keyOf } from "./keys.js";
import { complain, listen, relieve, state, update } from "./store.js";
import { Tiles, think } from "./tiles.js";

const view = find("view-classes");
let shown = "";
let focused = null; // the part that had the focus last
const answered = (item) => item.label || item.aside;

export const isOpen = () => !view.hidden;

export async function open(wanted = shown) {
  const names = state.classes.map((each) => each.name);
  const name = names.includes(wanted) ? wanted : names[0] ?? ""; // it may be undone by now
  shown = name;
  try {
    const [suspects, found] = await Promise.all([
      get("suspects"), name ? get(`class?name=${encodeURIComponent(name)}`) : null,
    ]);
    render(suspects, found);
  } catch (error) {
    complain(error);
  }
}

function render(suspects, found) {
  const parts = [
    make("h2", {}, "Check"),
    section(`Doubtful labels (${count(suspects.length)})`,
      "A model that has not seen the label is surer of another class than it usually is.",
      suspects, (item) => (item.changed ? { text: answered(item), kind: "given", done: true }
        : { text: `${item.label}; seems ${item.seems}`, kind: "doubt" })),
    make("div", { class: "pick", role: "group", "aria-label": "Class to check" },
      ...state.classes.map(({ name, labels }, place) => make("button", {
        "aria-pressed": String(name === shown), onclick: () => open(name),
      }, keyOf(place) ? make("kbd", {}, keyOf(place)) : null, ` ${name}`,
      make("span", { class: "count" }, count(labels))))),
  ];
  if (found?.name) {
    parts.push(manage(found.name),
      section(`Surest of ${count(found.count)} images that seem to be ${found.name}`,
        "Choose those that are not, and give them their class. Then confirm the others.",
        found.surest, (item) => ({ text: answered(item) || percent(item.confidence), done: Boolean(answered(item)) }), found.name),
      section(`Least sure of them`, "", found.least,
        (item) => ({ text: answered(item) || think(item), done: Boolean(answered(item)) }), found.name),
      section(`Labeled ${found.name}`, "The last ones first.", found.labeled,
        (item) => ({ text: answered(item), kind: "given", done: Boolean(item.changed) })));
  }
  const hadFocus = view.contains(document.activeElement);
  view.replaceChildren(...parts);
  if (hadFocus) view.querySelector(".pick [aria-pressed=true]")?.focus();
  focused = null;
  showChosen();
}

const showChosen = () => showFor(isOpen(), focused?.selected.length);

function section(title, hint, items, describe, confirm = "") {
  const tiles = new Tiles(title);
  tiles.show(items, describe);
  tiles.element.addEventListener("focusin", () => {
    if (focused !== tiles) focused?.clear();
    focused = tiles;
  });
  for (const kind of ["click", "keyup"]) tiles.element.addEventListener(kind, showChosen);
  const box = make("section", { class: "check-part" }, make("h3", {}, title),
    hint ? make("p", { class: "quiet" }, hint) : null,
    items.length ? tiles.element : make("p", { class: "quiet" }, "None."));
  if (confirm && items.length) {
    box.append(make("button", { onclick: () => correct(tiles, confirm,
      tiles.items.filter((item) => !answered(item)).map((item) => item.number)) },
    `Label all shown here without an answer as ${confirm}`));
  }
  return box;
}

function manage(name) {
  const input = make("input", { value: name, maxlength: 200, "aria-label": `New name of ${name}` });
  const form = make("form", { class: "row manage" }, input, make("button", {}, "Rename"),
    make("button", { type: "button", class: "danger", onclick: () => removeClass(name) }, "Remove class"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    change({ name, new: input.value }, input.value.trim());
  });
  return form;
}

function removeClass(name) {
  const labels = state.classes.find((each) => each.name === name)?.labels ?? 0;
  if (!labels || confirm(`Remove “${name}”? ${count(labels)} images lose their label. Undo brings them back.`)) {
    change({ name, remove: true }, "");
  }
}

async function change(request, next) {
  try {
    update(await post("classes", request));
    relieve();
    find("saved").textContent = "Saved.";
    await open(next);
  } catch (error) {
    complain(error);
  }
}

async function correct(tiles, label, numbers, event = "") {
  if (!numbers.length) return;
  try {
    update(await post("label", event ? { images: numbers, event } : { images: numbers, label }));
    relieve();
    for (const number of numbers) tiles.refresh({ number, label, aside: event, changed: true });
    tiles.clear();
    if (find("answers").contains(document.activeElement)) tiles.go(tiles.at); // it hides
    showChosen();
    find("saved").textContent = `Saved: ${count(numbers.length)} images, ${label || event}.`;
  } catch (error) {
    complain(error);
  }
}

export function answer(label, event = "") {
  if (hasFocus() || focused?.selected.length) correct(focused, label, focused.chosen, event);
}

const hasFocus = () => focused?.element.contains(document.activeElement);

// The image that has the focus stays chosen when the focus goes elsewhere.
export function choose() {
  if (hasFocus() && !focused.selected.length) focused.choose(focused.at, focused.at);
  showChosen();
}

listen(() => {
  if (isOpen() && !view.firstChild) open();
});
