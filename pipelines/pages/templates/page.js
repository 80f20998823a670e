// What the page does beyond being read: light or dark, contents, sorting, marks that say their numbers.
// Everything can be read without it.
"use strict";
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const make = (name, properties = {}, ...children) => {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
};
for (const one of all(".script")) one.hidden = false;

// light or dark: the system's choice until the reader takes the other
const root = document.documentElement, theme = document.querySelector(".theme");
root.classList.add("scripted");
const dark = () => root.classList.contains("dark") ||
  (!root.classList.contains("light") && matchMedia("(prefers-color-scheme: dark)").matches);
const say = () => { theme.textContent = dark() ? "Light page" : "Dark page"; };
theme.addEventListener("click", () => {
  const next = dark() ? "light" : "dark";
  root.classList.remove("light", "dark");
  root.classList.add(next);
  say();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", say);
say();

// contents: a column that is always open, or a bar that opens, on a narrow screen
const contents = document.querySelector(".contents details");
if (contents) {
  const wide = matchMedia("(min-width: 84rem)"), fit = () => { contents.open = wide.matches; };
  wide.addEventListener("change", fit);
  fit();
  const links = new Map(all("a", contents).map((link) => [link.hash.slice(1), link]));
  for (const link of links.values()) link.addEventListener("click", fit);
  const seen = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (!isIntersecting) continue;
      for (const link of links.values()) link.removeAttribute("aria-current");
      links.get(target.id).setAttribute("aria-current", "true");
    }
  }, { rootMargin: "-15% 0px -80% 0px" });
  for (const section of all("main > section")) if (links.has(section.id)) seen.observe(section);
}

// tables: a card for each row where the columns do not fit, sort by a column, filter and fold long ones
const named = (table) => {
  const names = all("thead th", table).map((head) => head.textContent);
  for (const row of table.tBodies[0].rows) [...row.cells].forEach((cell, i) => { cell.dataset.label = names[i]; });
};
for (const scroll of all(".scroll:not(:has(.stacked))")) {
  const table = scroll.querySelector("table");
  let width = 0;
  named(table);
  new ResizeObserver(() => {
    if (scroll.clientWidth === width) return;
    width = scroll.clientWidth;
    table.classList.remove("stacked");
    table.classList.toggle("stacked", scroll.scrollWidth > width + 1);
  }).observe(scroll);
}
const SHORT = 12;
const number = (text) => text.startsWith("∞") ? Infinity : parseFloat(text.replace(/,/g, "").replace("−", "-"));
const compare = (a, b) => {
  if (a.className === "number" || b.className === "number") {
    const [x, y] = [number(a.textContent), number(b.textContent)];
    return isNaN(x) || isNaN(y) ? isNaN(x) - isNaN(y) : x === y ? 0 : x < y ? -1 : 1;
  }
  return a.textContent.localeCompare(b.textContent, "en", { numeric: true });
};
for (const frame of all(".table")) {
  const table = frame.querySelector("table"), heads = [...table.tHead.rows[0].cells];
  const [body] = table.tBodies, rows = [...body.rows], { length } = rows;
  if (length < 3 || table.classList.contains("stacked")) continue;
  heads.forEach((head, column) => {
    const button = make("button", { type: "button", title: "Sort" }, ...head.childNodes);
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const sorted = [...rows].sort((a, b) => compare(a.cells[column], b.cells[column]));
      body.append(...(down ? sorted.reverse() : sorted));
    });
  });
  if (length <= SHORT + 3) continue;
  const filter = make("input", { type: "search", placeholder: "Filter rows" });
  filter.setAttribute("aria-label", "Filter the rows of this table");
  const fold = make("button", { type: "button" }), count = make("span");
  count.setAttribute("role", "status");
  let short = true;
  const update = () => {
    const sought = filter.value.trim().toLowerCase();
    let shown = 0;
    for (const row of rows) {
      row.hidden = sought !== "" && !row.textContent.toLowerCase().includes(sought);
      shown += !row.hidden && row.checkVisibility();
    }
    table.classList.toggle("short", short && sought === "");
    fold.hidden = sought !== "";
    fold.textContent = short ? `Show all ${length} rows` : "Show fewer rows";
    count.textContent = sought === "" ? "" : `${shown} of ${length} rows`;
  };
  filter.addEventListener("input", update);
  fold.addEventListener("click", () => { short = !short; update(); });
  frame.querySelector(".tools").prepend(fold, filter, count);
  update();
}

// figures: the mark nearest to the pointer says its number, beside the others at the same place
const said = (mark) => mark.querySelector("title").textContent.split("\n");
for (const plot of all(".plot")) {
  const tip = make("div", { className: "tip", hidden: true });
  tip.setAttribute("role", "status");
  plot.append(tip);
  plot.tabIndex = 0;
  plot.setAttribute("role", "group");
  plot.setAttribute("aria-label", "Figure; the arrow keys go along its marks");
  let marks = [], current = null, ring = null;
  const drawing = () => all("svg", plot).find((svg) => getComputedStyle(svg).display !== "none");
  const boxes = () => { marks = all(".mark", drawing()).map((mark) => ({ mark, box: mark.getBoundingClientRect() })); };
  const away = ({ box }, x, y) => Math.hypot(Math.max(box.left - x, 0, x - box.right),
    Math.max(box.top - y, 0, y - box.bottom));
  const leave = () => { ring?.remove(); current?.parentNode.classList.remove("here"); };
  const hide = () => { tip.hidden = true; leave(); current = null; };
  const show = (mark) => {
    if (mark === current) return;
    leave();
    current = mark;
    mark.parentNode.classList.add("here");
    const svg = drawing(), [, place] = said(mark);
    ring = document.createElementNS(mark.namespaceURI, "path");
    ring.setAttribute("class", "ring");
    ring.setAttribute("d", mark.getAttribute("d"));
    svg.append(ring);
    const list = make("table");
    for (const one of all(".mark", svg)) {
      const [series, where, value] = said(one);
      if (where === place) {
        list.append(make("tr", { className: one === mark ? "here" : "" }, make("td", {}, series), make("td", {}, value)));
      }
    }
    tip.replaceChildren(make("b", {}, place), make("small", {}, svg.dataset.x), list);
    tip.hidden = false;
    const frame = plot.getBoundingClientRect(), box = mark.getBoundingClientRect();
    const beside = box.right - frame.left + 14, over = box.left - frame.left - tip.offsetWidth - 14;
    const left = beside + tip.offsetWidth <= frame.width ? beside : over >= 0 ? over : frame.width - tip.offsetWidth;
    tip.style.left = `${Math.max(0, left)}px`;
    tip.style.top = left === beside || left === over
      ? `${Math.max(0, box.top - frame.top - tip.offsetHeight / 2)}px` : `${box.bottom - frame.top + 14}px`;
  };
  plot.addEventListener("pointerenter", boxes);
  plot.addEventListener("pointermove", ({ clientX, clientY }) => {
    boxes();
    const near = marks.map((one) => [away(one, clientX, clientY), one.mark]).sort((a, b) => a[0] - b[0])[0];
    if (near && near[0] < 40) show(near[1]); else hide();
  });
  plot.addEventListener("pointerleave", hide);
  plot.addEventListener("blur", hide);
  plot.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") hide();
    boxes();
    if (!step || !marks.length) return;
    event.preventDefault();
    const at = marks.findIndex(({ mark }) => mark === current);
    show(marks[at < 0 ? 0 : (at + step + marks.length) % marks.length].mark);
  });
}

// figures as files: the wide drawing in fixed colours on a light ground, as SVG, or drawn on a canvas as PNG
const PAPER = "#fcfcfa", SCALE = 3;
const save = (name, href) => make("a", { download: name, href }).click();
const fixed = (svg) => {
  const copy = svg.cloneNode(true);
  copy.querySelector(".ring")?.remove();
  copy.setAttribute("style", `background: ${PAPER}; font-family: system-ui, sans-serif`);
  const text = new XMLSerializer().serializeToString(copy).replace(/var\(--\w+,(#\w+)\)/g, "$1");
  return `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
};
const asPng = async (svg) => {
  const { width, height } = svg.viewBox.baseVal, image = new Image(), canvas = make("canvas");
  image.src = fixed(svg);
  await image.decode();
  [canvas.width, canvas.height] = [SCALE * width, SCALE * height];
  const context = canvas.getContext("2d");
  context.fillStyle = PAPER;
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
  return canvas.toDataURL("image/png");
};
for (const drawn of all(".drawn")) {
  const svg = drawn.querySelector("svg"), { name } = drawn.dataset;
  const button = (kind, href) => {
    const one = make("button", { type: "button", title: `Save this figure as ${kind}` }, kind);
    one.addEventListener("click", async () => save(`${name}.${kind.toLowerCase()}`, await href(svg)));
    return one;
  };
  drawn.append(make("div", { className: "tools save" }, "Save as", button("SVG", fixed), button("PNG", asPng)));
}
