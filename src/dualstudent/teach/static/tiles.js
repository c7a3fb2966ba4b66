// A grid of images, moved through by arrows; one or several are chosen.
import { picture } from "./api.js";
import { make, percent } from "./dom.js";

export class Tiles {
  constructor(label, { onChange = () => {} } = {}) {
    this.element = make("div", {
      class: "tiles", role: "listbox", "aria-label": label, "aria-multiselectable": "true",
    });
    this.items = [];
    this.at = 0;
    this.anchor = 0;
    this.onChange = onChange;
    this.element.addEventListener("keydown", (event) => this.move(event));
    this.element.addEventListener("click", (event) => this.click(event));
    this.element.addEventListener("focusin", (event) => {
      const place = this.tiles.indexOf(event.target.closest(".tile"));
      if (place >= 0 && place !== this.at) this.go(place, false);
    });
  }

  get tiles() {
    return [...this.element.children];
  }

  get selected() {
    return this.tiles.filter((tile) => tile.ariaSelected === "true")
      .map((tile) => Number(tile.dataset.number));
  }

  get chosen() {
    const found = this.selected;
    const current = this.items[this.at]?.number;
    return found.length ? found : current === undefined ? [] : [current];
  }

  show(items, describe) {
    this.items = items;
    this.describe = describe;
    this.element.replaceChildren(...items.map((item) => this.makeTile(item)));
    this.go(0, false);
  }

  makeTile(item) {
    const note = this.describe(item);
    const image = make("img", {
      src: picture(item.number, 320), alt: "", loading: "lazy", decoding: "async",
    });
    const tile = make("div", {
      class: "tile", role: "option", tabindex: -1, "aria-selected": "false",
      "data-number": item.number, "aria-label": nameTile(item, note),
    }, image, make("span", { class: `note ${note.kind ?? ""}` }, note.text || item.name));
    tile.classList.toggle("done", Boolean(note.done));
    image.addEventListener("error", () => tile.classList.add("broken"));
    image.addEventListener("load", () => tile.classList.toggle("small", image.naturalWidth <= 128));
    return tile;
  }

  refresh(item) {
    const place = this.items.findIndex((each) => each.number === item.number);
    if (place < 0) return;
    Object.assign(this.items[place], item); // also for whoever else has it
    const tile = this.tiles[place], note = this.describe(this.items[place]);
    tile.setAttribute("aria-label", nameTile(this.items[place], note));
    tile.lastChild.textContent = note.text || this.items[place].name;
    tile.lastChild.className = `note ${note.kind ?? ""}`;
    tile.classList.toggle("done", Boolean(note.done));
  }

  go(place, focus = true) {
    const tiles = this.tiles;
    if (!tiles.length) return;
    this.at = Math.min(Math.max(place, 0), tiles.length - 1);
    tiles.forEach((tile, index) => tile.setAttribute("tabindex", index === this.at ? 0 : -1));
    if (focus) tiles[this.at].focus();
    this.onChange(this.items[this.at]);
  }

  next() {
    const left = this.items.map((item, place) => [this.describe(item).done, place])
      .filter(([done]) => !done).map(([, place]) => place);
    if (!left.length) return false;
    this.go(left.find((place) => place > this.at) ?? left[0]);
    return true;
  }

  clear() {
    for (const tile of this.tiles) tile.ariaSelected = "false";
  }

  choose(from, to) {
    const [low, high] = [Math.min(from, to), Math.max(from, to)];
    this.tiles.forEach((tile, place) => {
      tile.ariaSelected = String(place >= low && place <= high);
    });
  }

  move(event) {
    const columns = getComputedStyle(this.element).gridTemplateColumns.split(" ").length;
    const steps = {
      ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns,
      Home: -Infinity, End: Infinity,
    };
    if (!(event.key in steps) || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const from = this.at;
    this.go(this.at + steps[event.key]);
    if (event.shiftKey) this.choose(this.anchor, this.at);
    else {
      this.anchor = this.at;
      if (from !== this.at) this.clear();
    }
  }

  click(event) {
    const tile = event.target.closest(".tile");
    if (!tile) return;
    const place = this.tiles.indexOf(tile);
    if (event.shiftKey) this.choose(this.anchor, place);
    else {
      tile.ariaSelected = String(tile.ariaSelected !== "true");
      this.anchor = place;
    }
    this.go(place);
  }
}

const nameTile = (item, note) => [item.name, note.text].filter(Boolean).join(", ");

export function think(item) {
  return item.predicted ? `${item.predicted}, ${percent(item.confidence)} sure` : "";
}
