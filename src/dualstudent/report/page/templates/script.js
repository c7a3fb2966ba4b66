"use strict";
// The cursor of a chart steps through the rows of the table behind it.
for (const figure of document.querySelectorAll("figure.chart")) {
  const plot = figure.querySelector("svg.plot");
  const cursor = plot.querySelector(".cursor");
  const dots = [...plot.querySelectorAll(".dot")];
  const at = figure.querySelector(".readout .at");
  const values = [...figure.querySelectorAll(".readout b")];
  const rows = [...figure.querySelectorAll("tbody tr")];
  const last = rows.length - 1;
  let current = last;

  const read = (index) => {
    current = Math.min(Math.max(index, 0), last);
    const row = rows[current];
    at.textContent = row.cells[0].textContent;
    plot.setAttribute("aria-valuenow", current);
    plot.setAttribute("aria-valuetext", at.textContent);
    cursor.setAttribute("transform", `translate(${row.dataset.x} 0)`);
    values.forEach((value, column) => {
      const cell = row.cells[column + 1];
      value.textContent = cell.textContent;
      const shown = cell.dataset.y !== undefined;
      dots[column].dataset.on = shown;
      if (shown) {
        dots[column].setAttribute("cx", cell.dataset.x);
        dots[column].setAttribute("cy", cell.dataset.y);
      }
    });
    cursor.setAttribute("visibility", "visible");
    for (const dot of dots) {
      dot.setAttribute("visibility", dot.dataset.on === "true" ? "visible" : "hidden");
    }
  };
  const rest = () => {
    if (document.activeElement === plot) return;
    read(last);
    for (const part of [cursor, ...dots]) part.setAttribute("visibility", "hidden");
  };
  const nearest = (event) => {
    const box = plot.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * plot.viewBox.baseVal.width;
    const away = rows.map((row) => Math.abs(row.dataset.x - x));
    return away.indexOf(Math.min(...away));
  };
  const steps = {
    ArrowLeft: () => current - 1, ArrowDown: () => current - 1,
    ArrowRight: () => current + 1, ArrowUp: () => current + 1,
    PageDown: () => current - Math.ceil(last / 10), PageUp: () => current + Math.ceil(last / 10),
    Home: () => 0, End: () => last,
  };

  for (const [name, value] of Object.entries({
    role: "slider", tabindex: 0, "aria-valuemin": 0, "aria-valuemax": last,
    "aria-labelledby": `${figure.querySelector("h3").id}`,
  })) plot.setAttribute(name, value);
  plot.addEventListener("pointermove", (event) => read(nearest(event)));
  plot.addEventListener("pointerdown", (event) => read(nearest(event)));
  plot.addEventListener("pointerleave", rest);
  plot.addEventListener("focus", () => read(current));
  plot.addEventListener("blur", rest);
  plot.addEventListener("keydown", (event) => {
    const step = steps[event.key];
    if (!step) return;
    event.preventDefault();
    read(step());
  });
  plot.setAttribute("aria-valuenow", current);
  plot.setAttribute("aria-valuetext", at.textContent);
}
