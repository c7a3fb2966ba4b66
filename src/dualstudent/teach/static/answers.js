// The answers below both views; in Check they are for the images that are chosen there.
import { count, find, make, setText } from "./dom.js";
import { KEYS, keyOf } from "./keys.js";
import { listen, state } from "./store.js";

export function showFor(isCheck, chosen = 0) {
  const bar = find("answers");
  bar.classList.toggle("over", isCheck);
  bar.classList.toggle("idle", isCheck && !chosen);
  find("chosen").hidden = !isCheck || !chosen;
  setText("chosen", `${count(chosen)} chosen:`);
}

function showClasses(answer) {
  const bar = find("classes");
  const wanted = JSON.stringify(state.classes);
  if (bar.dataset.shown === wanted) return;
  bar.dataset.shown = wanted;
  const focused = [...bar.children].indexOf(document.activeElement); // stays where it was
  bar.replaceChildren(...state.classes.map(({ name, labels }, place) => make("button", {
    class: "class", onclick: () => answer(name), title: name,
    "aria-keyshortcuts": keyOf(place) || null,
  }, keyOf(place) ? make("kbd", {}, keyOf(place)) : null,
  make("span", { class: "name" }, name), make("span", { class: "count" }, count(labels)))));
  bar.children[focused]?.focus();
  find("class-names").replaceChildren(
    ...state.classes.slice(KEYS).map(({ name }) => make("option", { value: name })));
}

export function begin(answer) {
  listen(() => {
    showClasses(answer);
    find("undo").disabled = !state.can_undo;
  });
}
