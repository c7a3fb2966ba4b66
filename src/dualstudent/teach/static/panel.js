// What is known beside the image: counts, the chart, trainings.
import { post } from "./api.js";
import { count, draw, find, make, percent, setText } from "./dom.js";
import { complain, listen, relieve, state, update, warn } from "./store.js";

const WIDTH = 360, HEIGHT = 190, LEFT = 42, RIGHT = 14, TOP = 8, BOTTOM = 24;
let wasTroubled = false;

function showFacts() {
  const { model } = state;
  setText("labels", count(state.labels));
  setText("labels-more", `of ${count(state.images)} images`
    + (state.given ? `, and ${count(state.given)} came with one` : ""));
  const estimate = model?.estimate;
  setText("accuracy", estimate ? `${(100 * estimate.low).toFixed(0)}–${percent(estimate.high)}` : "–");
  setText("accuracy-more", estimate
    ? `${count(estimate.correct)} of ${count(estimate.measured)} random images right`
      + (state.left_out ? `; ${count(state.left_out)} without a label left out` : "")
    : describeMissing(10, "once 10 random images have a label"));
  const trusted = model?.trusted;
  setText("trusted", trusted?.known ? count(trusted.count) : "–");
  setText("trusted-more", trusted?.known
    ? `of ${count(trusted.of)} unlabeled: ${percent(trusted.precision)} right, at least ${percent(trusted.at_least)}`
    : describeMissing(20, "once 20 random images show when it is right"));
}

const describeMissing = (least, text) => (state.sample < least ? "too few images here to say" : text);

function listNews() {
  const { model, features } = state, news = [];
  if (state.learning && features) news.push(["learning", "Learning from the last labels …"]);
  if (model?.changed && model.changed.labels > 0) {
    const { labels, images, of } = model.changed;
    news.push(["", `The last ${count(labels)} labels changed ${count(images)} of ${count(of)} predictions `
      + `(${percent(images / of, 1)}).`]);
  }
  if (model?.forecast) {
    const { low, high, goal } = model.forecast;
    news.push(["", `About ${low === high ? count(low) : `${count(low)} to ${count(high)}`} more labels to `
      + `${percent(goal)}, if it goes on like this.`]);
  }
  if (model?.suspects) {
    news.push(["", `${count(model.suspects)} ${model.suspects === 1 ? "label looks" : "labels look"} doubtful: see Check.`]);
  }
  if (state.taking_part < state.images) {
    news.push(["", `${count(state.taking_part)} of ${count(state.images)} images take part here, drawn at `
      + "random; thorough training uses all."]);
  }
  return news;
}

function showNews() {
  const news = listNews(), list = find("news"), wanted = JSON.stringify(news);
  if (list.dataset.shown === wanted) return;
  list.dataset.shown = wanted;
  list.replaceChildren(...news.map(([kind, text]) => make("li", { class: kind }, text)));
}

function showChart() {
  const points = state.history;
  const shown = JSON.stringify(points);
  if (find("chart").dataset.shown === shown) return;
  find("chart").dataset.shown = shown;
  find("chart").hidden = points.length < 2;
  if (points.length < 2) return;
  const last = points[points.length - 1].labels, first = points[0].labels;
  const floor = Math.max(0, Math.floor(10 * Math.min(...points.map((p) => p.low))) / 10);
  const x = (labels) => LEFT + ((labels - first) / Math.max(1, last - first)) * (WIDTH - LEFT - RIGHT);
  const y = (share) => TOP + (1 - (share - floor) / (1 - floor)) * (HEIGHT - TOP - BOTTOM);
  const at = (key) => points.map((p) => [x(p.labels), y(key === "accuracy" ? p.correct / p.measured : p[key])]);
  const line = (pairs) => pairs.map(([a, b]) => `${a.toFixed(1)},${b.toFixed(1)}`).join("L");
  const svg = draw("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "plot", role: "img",
    "aria-label": `Estimated accuracy rose from ${percent(points[0].correct / points[0].measured)} at `
      + `${first} labels to ${percent(points.at(-1).correct / points.at(-1).measured)} at ${last}.` });
  for (let share = Math.ceil(10 * floor) / 10; share <= 1.001; share += (1 - floor > 0.5 ? 0.2 : 0.1)) {
    svg.append(draw("path", { class: "grid", d: `M${LEFT} ${y(share)}H${WIDTH - RIGHT}` }),
      draw("text", { class: "y", x: LEFT - 6, y: y(share) }, percent(share)));
  }
  for (const labels of new Set([first, Math.round((first + last) / 2), last])) {
    const side = labels === last ? "x last" : "x"; // so that long numbers are not cut off
    svg.append(draw("text", { class: side, x: x(labels), y: HEIGHT - 6 }, count(labels)));
  }
  svg.append(
    draw("path", { class: "band", d: `M${line(at("low"))}L${line(at("high").reverse())}Z` }),
    draw("path", { class: "curve", d: `M${line(at("accuracy"))}` }),
    draw("circle", { class: "end", r: 4, cx: at("accuracy").at(-1)[0], cy: at("accuracy").at(-1)[1] }));
  find("plot").replaceChildren(svg);
  find("points").replaceChildren(make("table", {},
    make("thead", {}, make("tr", {}, ...["labels", "right", "from", "to", "measured"]
      .map((name) => make("th", { scope: "col" }, name)))),
    make("tbody", {}, ...[...points].reverse().map((p) => make("tr", {},
      make("th", { scope: "row" }, count(p.labels)),
      ...[percent(p.correct / p.measured), percent(p.low), percent(p.high), count(p.measured)]
        .map((text) => make("td", {}, text)))))));
}

function showFeatures() {
  const { features, taking_part: total } = state, box = find("features");
  box.hidden = features !== null && features.done >= features.total;
  find("features-bar").max = total;
  if (features) find("features-bar").value = features.done;
  setText("features-name", features
    ? `Computing ${features.name}: ${count(features.done)} of ${count(features.total)}`
    : "Looking at the images …");
}

function showTraining() {
  const { training } = state, runs = training?.state === "running";
  find("train").hidden = runs;
  find("train-stop").hidden = !runs;
  const bar = find("train-bar");
  bar.hidden = !runs;
  if (training?.total) {
    bar.max = training.total;
    bar.value = training.done;
  } else bar.removeAttribute("value");
  setText("train-line", describeTraining(training));
  const wanted = state.runs.join();
  if (find("runs").dataset.shown === wanted) return;
  find("runs").dataset.shown = wanted;
  find("runs").replaceChildren(...state.runs.map((name) => make("li", {},
    make("a", { href: `report/${name}`, target: "_blank", rel: "noopener" }, `Report of run ${name}`),
    make("code", {}, ` runs/${name}`))));
}

function describeTraining(training) {
  if (!training) return "";
  const { state: now, done, total, line, name, error } = training;
  if (now === "running") return total ? `Epoch ${count(done)} of ${count(total)}` : line || "Starting …";
  if (now === "stopped") return `Run ${name} was stopped; “dualstudent resume” continues it.`;
  if (now === "failed") return `Run ${name} failed: ${line}`;
  return `Run ${name} is done${error === null ? "" : `: ${error.toFixed(1)} % wrong on its test images`}.`;
}

function showUnreadable() {
  const { unreadable } = state, box = find("unreadable");
  box.hidden = unreadable.count === 0;
  box.querySelector("summary").textContent = `${count(unreadable.count)} files cannot be read`;
  box.querySelector("ul").replaceChildren(...unreadable.files.map(([name, reason]) =>
    make("li", {}, make("code", {}, name), ` ${reason}`)));
}

async function ask(address, content, describe = () => "") {
  try {
    const found = await post(address, content);
    update(found);
    relieve();
    setText("exchange", describe(found));
  } catch (error) {
    complain(error);
  }
}

export function begin() {
  find("train").onclick = () => ask("training", { tested: find("tested").checked });
  find("train-stop").onclick = () => ask("training", { stop: true });
  for (const how of ["copy", "link"]) {
    find(how).onclick = () => ask("folders", { link: how === "link" },
      ({ folders }) => `${count(folders.images)} images in ${folders.path}`);
  }
  find("import").onchange = async (event) => {
    const [file] = event.target.files;
    if (file) {
      await ask("import", file, ({ imported }) => `${count(imported.labels)} labels imported`
        + (imported.unknown ? `; ${count(imported.unknown)} are of images that are not here, such as ${imported.names[0]}` : ""));
    }
    event.target.value = "";
  };
}

listen(() => {
  showFacts();
  showNews();
  showChart();
  showFeatures();
  showTraining();
  showUnreadable();
  setText("journal", state.journal);
  if (state.trouble) warn(state.trouble);
  else if (wasTroubled) relieve();
  wasTroubled = Boolean(state.trouble);
});
