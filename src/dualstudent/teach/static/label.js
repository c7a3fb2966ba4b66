// The view in which images are labeled, one at a time or twenty.
import { picture, post, tab } from "./api.js";
import { count, find, make } from "./dom.js";
import { complain, listen, relieve, state, update } from "./store.js";
import { Tiles, think } from "./tiles.js";

const AHEAD = 6, GRID = 20;
let queue = [];
let isGrid = false;
let isFetching = false;
let isEmpty = false;
let revealed = -1;
let saving = Promise.resolve();
let lost = null; // the image whose picture did not come
const unsaved = new Set(); // images whose answers are on their way
const tiles = new Tiles("Images to label", { onChange: () => showThinking() });
const thinks = find("thinks");
const kept = new Map(); // pictures that are loaded ahead

const current = () => (isGrid ? tiles.items[tiles.at] : queue[0]);

async function fill() {
  // Nothing is shown before the state is known, since no answer could be taken.
  if (!state || isFetching || queue.length >= (isGrid ? GRID : AHEAD)) return;
  isFetching = true;
  try {
    const wanted = (isGrid ? GRID : AHEAD + 2) - queue.length;
    const filter = find("filter").value, [kind, value] = filter.split(/:(.*)/s);
    const found = await post("next", {
      tab, count: wanted, shown: [...queue.map((item) => item.number), ...unsaved],
      label: kind === "class" ? value : "", event: kind === "event" ? value : "",
    });
    if (find("filter").value !== filter) return; // others are wanted by now
    const wasEmpty = queue.length === 0;
    queue.push(...found.filter((item) => !unsaved.has(item.number)
      && !queue.some((each) => each.number === item.number)));
    isEmpty = queue.length === 0;
    for (const item of queue) load(item.number);
    if (wasEmpty || isGrid) show();
  } catch (error) {
    complain(error);
  } finally {
    isFetching = false;
  }
}

export function refill() {
  if (!queue.length) fill();
  else if (lost && queue[0] === lost) show();
  lost = null;
}

function load(number) {
  if (kept.has(number)) return;
  const image = new Image();
  image.src = picture(number, 1600);
  image.decode().catch(() => {});
  kept.set(number, image);
  if (kept.size > 3 * GRID) kept.delete(kept.keys().next().value);
}

export function restart() {
  queue = [];
  isEmpty = false; // as far as is known
  show();
  fill();
}

function show() {
  const stage = find("stage");
  stage.classList.toggle("as-grid", isGrid);
  if (!queue.length) {
    stage.replaceChildren(make("p", { class: "empty" }, describeEmpty()));
    return;
  }
  if (isGrid) {
    tiles.show(queue.slice(0, GRID), describeTile);
    stage.replaceChildren(tiles.element);
    tiles.go(0, document.activeElement === document.body || stage.contains(document.activeElement));
    return;
  }
  const item = queue[0];
  const image = kept.get(item.number)?.cloneNode() ?? make("img", { src: picture(item.number, 1600) });
  image.alt = `Image to label: ${item.name}`;
  image.className = "large";
  image.addEventListener("error", () => reconsider(item));
  const enlarge = () => image.classList.toggle("small", image.naturalWidth <= 128);
  image.addEventListener("load", enlarge);
  if (image.complete) enlarge();
  stage.replaceChildren(
    make("div", { class: "frame", id: "frame", tabindex: -1 }, image),
    make("p", { class: "caption" },
      make("span", { class: "file" }, item.name),
      item.measures ? make("span", { class: "badge", title: "It is one of the random sample by which "
        + "accuracy is estimated. What the model thinks is hidden, so that it does not sway you." },
      "measures the model") : null,
      item.label ? make("span", { class: "badge was" }, `was ${item.label}`) : null,
      make("span", { id: "thought", class: "thought" })));
  find("zoom").setAttribute("aria-pressed", "false");
  showThinking();
  image.dataset.shown = performance.now();
}

function describeEmpty() {
  if (!isEmpty) return "Looking for images …";
  return find("filter").value ? "There are no such images." : "Every image has its answer.";
}

function describeTile(item) {
  if (item.label) return { text: item.label, kind: "given", done: true };
  if (item.aside) return { text: item.aside, kind: "aside", done: true };
  if (thinks.checked && !item.measures && item.predicted) return { text: think(item), kind: "guess" };
  return { text: "", kind: "" };
}

// A picture fails because it cannot be read, or because the program is gone: then it stays.
async function reconsider(item) {
  let found = null;
  try {
    found = await fetch(picture(item.number, 1600));
  } catch (error) {
    complain(error);
  }
  if (found && !found.ok) pass(item);
  else lost = item; // tried again soon
}

// A picture that cannot be shown is listed by the program, and nobody is asked for it.
function pass(item) {
  queue = queue.filter((each) => each.number !== item.number);
  find("saved").textContent = `${item.name} cannot be read; it is skipped and listed.`;
  show();
  fill();
}

export function showThinking() {
  if (isGrid) {
    for (const item of tiles.items) tiles.refresh(item);
    return;
  }
  const item = queue[0], line = find("thought");
  if (!item || !line) return;
  const visible = thinks.checked && (!item.measures || revealed === item.number);
  line.textContent = visible ? (item.predicted ? `The model thinks: ${think(item)}`
    : "The model knows nothing about it yet") : "";
}

export function toggleThinking() {
  const item = queue[0];
  if (!isGrid && thinks.checked && item?.measures && revealed !== item.number) {
    revealed = item.number; // asked for on purpose
  } else {
    thinks.checked = !thinks.checked;
  }
  showThinking();
}

export function answer(label, event = "") {
  const items = isGrid ? tiles.items.filter((item) => tiles.chosen.includes(item.number))
    : queue.slice(0, 1);
  if (!items.length) return;
  const numbers = items.map((item) => item.number), before = items.map((item) => ({ ...item }));
  if (isGrid) {
    for (const { number } of items) tiles.refresh({ number, label, aside: label ? "" : event });
    tiles.clear();
    if (!tiles.next()) {
      queue = queue.slice(tiles.items.length);
      fill();
    }
  } else {
    queue.shift();
    show();
  }
  for (const number of numbers) unsaved.add(number);
  saving = saving.then(() => save(before, numbers, label, event));
  fill();
}

async function save(items, numbers, label, event) {
  try {
    update(await post("label", event ? { images: numbers, event } : { images: numbers, label }));
    relieve();
    const what = items.length > 1 ? `${items.length} images` : items[0].name;
    find("saved").textContent = `Saved: ${what}, ${label || event}. ${describeNext()}`;
  } catch (error) {
    complain(error); // nothing was saved: the images come back
    queue = [...items, ...queue.filter((item) => !numbers.includes(item.number))];
    show();
  } finally {
    for (const number of numbers) unsaved.delete(number);
  }
}

function describeNext() {
  const item = current();
  return item && !isGrid ? `Next: ${item.name}.` : "";
}

function describeUndone(items) {
  if (!items) return "There is nothing to undo.";
  if (!items.length) return "Undone: the last change of a class.";
  return `Undone: ${items.length === 1 ? items[0].name : `${count(items.length)} images`}.`;
}

export async function undo() {
  await saving;
  try {
    const found = await post("undo");
    update(found);
    const undone = found.undone ?? [], numbers = undone.map((item) => item.number);
    find("saved").textContent = describeUndone(found.undone);
    // Those that have a label again, as after the new name of a class, are not asked for.
    const wanted = undone.filter((item) => !item.label || queue.some((each) => each.number === item.number));
    queue = [...wanted.slice(0, GRID), ...queue.filter((item) => !numbers.includes(item.number))];
    show();
  } catch (error) {
    complain(error);
  }
}

export function setGrid(wanted) {
  isGrid = wanted;
  find("single").setAttribute("aria-pressed", String(!isGrid));
  find("grid").setAttribute("aria-pressed", String(isGrid));
  find("zoom").disabled = isGrid;
  queue = queue.filter((item) => !describeTile(item).done);
  show();
  fill();
}

export const toggleGrid = () => setGrid(!isGrid);

export function zoom() {
  const frame = find("frame");
  if (!frame) return;
  const zoomed = frame.classList.toggle("zoomed");
  find("zoom").setAttribute("aria-pressed", String(zoomed));
  if (zoomed) {
    frame.scrollTo((frame.scrollWidth - frame.clientWidth) / 2,
      (frame.scrollHeight - frame.clientHeight) / 2);
    frame.focus();
  }
}

export function moveZoomed(key) {
  const frame = find("frame");
  const steps = { ArrowLeft: [-80, 0], ArrowRight: [80, 0], ArrowUp: [0, -80], ArrowDown: [0, 80] };
  if (!frame?.classList.contains("zoomed") || !(key in steps)) return false;
  frame.scrollBy(...steps[key]);
  return true;
}

function showFilter() {
  const filter = find("filter"), value = filter.value;
  const wanted = JSON.stringify([state.classes.map((each) => each.name), state.aside]);
  if (filter.dataset.shown === wanted) return;
  filter.dataset.shown = wanted;
  const asides = Object.entries(state.aside).filter(([, number]) => number);
  filter.replaceChildren(
    make("option", { value: "" }, "what the model asks for"),
    ...state.classes.map(({ name }) => make("option", { value: `class:${name}` }, `what seems to be ${name}`)),
    ...asides.map(([event, number]) => make("option", { value: `event:${event}` }, `${event} (${count(number)})`)));
  filter.value = [...filter.options].some((option) => option.value === value) ? value : "";
}

listen(showFilter);
