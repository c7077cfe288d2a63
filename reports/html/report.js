// SPDX-License-Identifier: Apache-2.0
// Draws the page from the documents in #documents: records, times and costs. Text goes in as text
// alone: a kernel's message can hold anything.
"use strict";
(() => {
  const documents = JSON.parse(document.getElementById("documents").textContent);
  const page = document.getElementById("page");
  // Okabe and Ito's colours that are seen on light and dark, told apart without colour by marks.
  const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];
  const MARKS = ["circle", "square", "diamond", "triangle", "cross", "bar"];
  const SVG = "http://www.w3.org/2000/svg";

  /// make("td", {class: "number"}, "12", child, ...)
  function make(tag, attributes, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
    element.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
    return element;
  }
  function draw(tag, attributes, ...children) {
    const element = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  }
  const grouped = (n) => n.toLocaleString("en-US");
  const number = (x) => (typeof x === "number" ? x : x === "inf" ? Infinity : x === "-inf" ? -Infinity : NaN);
  /// Three digits; as many more as tell a value from 1, which as error over tolerance is the limit.
  function short(x) {
    const value = number(x);
    if (!Number.isFinite(value)) return String(x);
    if (value !== 0 && (Math.abs(value) >= 1e5 || Math.abs(value) < 1e-3)) return value.toExponential(2);
    let digits = 3;
    while (digits < 17 && value !== 1 && +value.toPrecision(digits) === 1) ++digits;
    return String(+value.toPrecision(digits));
  }
  function scaled(value, base, units) {
    let unit = 0;
    while (unit + 1 < units.length && Math.abs(value) >= base) {
      value /= base;
      ++unit;
    }
    return +value.toPrecision(3) + units[unit];
  }
  const si = (x) => scaled(x, 1000, ["", " k", " M", " G", " T", " P", " E", " Z"]);
  const bytes = (x) => scaled(x, 1024, [" B", " KiB", " MiB", " GiB", " TiB", " PiB"]);
  function time(seconds) {
    for (const [size, unit] of [[1, " s"], [1e-3, " ms"], [1e-6, " us"]])
      if (seconds >= size) return +(seconds / size).toPrecision(3) + unit;
    return +(seconds * 1e9).toPrecision(3) + " ns";
  }
  function median(values) {
    const sorted = [...values].sort((a, b) => a - b), half = sorted.length >> 1;
    return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
  }

  function table(heads, rows, className) {
    const cell = (tag, value, column) => {
      const right = heads[column].right;
      return make(tag, right ? {class: "number"} : {}, value);
    };
    return make("div", {class: "scroll", tabindex: "0"},
      make("table", className ? {class: className} : {},
        make("thead", {}, make("tr", {}, ...heads.map((head, i) => cell("th", head.name, i)))),
        make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((value, i) => cell("td", value, i)))))));
  }
  const left = (name) => ({name, right: false});
  const right = (name) => ({name, right: true});

  // Verdicts.
  const WORDS = {conformant: ["CONFORMANT", "good"], not_conformant: ["NOT CONFORMANT", "bad"],
                 too_little_tested: ["TOO LITTLE TESTED", "warn"], incomplete: ["INCOMPLETE", "warn"]};
  function verdict(name) {
    const [word, look] = WORDS[name] || [name, "warn"];
    return make("span", {class: "verdict " + look}, word);
  }
  const FAILING = ["fail", "crash", "hang", "out_of_memory"];
  const failing = (counts) => FAILING.reduce((sum, key) => sum + counts[key], 0);
  const all = (counts) => Object.values(counts).reduce((sum, n) => sum + n, 0);
  const title = (record) => record.subject.name + " " + record.subject.version;

  function verdicts(records) {
    const rows = records.map((record, i) => [
      make("a", {href: "#record-" + i}, title(record)), verdict(record.verdict), grouped(all(record.counts)),
      grouped(failing(record.counts)), record.scope.dtypes.join(" "),
      short(Math.max(0, ...record.ratios.filter((one) => one.cases > 0).map((one) => number(one.max)))),
      record.suite, record.times.wall_seconds.toFixed(1) + " s"]);
    return table([left("kernel"), left("verdict"), right("cases"), right("failing"), left("dtypes"),
                  right("largest err/T"), left("suite"), right("time")], rows);
  }

  // A failure, with everything that is known of it.
  function elements(failure) {
    const pattern = /^(\w+)\[([\d,]+)\] expected (\S+) got (\S+) \(tolerance (\S+)\)/;
    return failure.numbers.map((line) => pattern.exec(line)).filter(Boolean).map((match) => ({
      tensor: match[1], index: match[2].split(",").map(Number), expected: Number(match[3]), actual: Number(match[4]),
      ratio: Math.abs(Number(match[3]) - Number(match[4])) / Number(match[5])}));
  }
  /// Error over tolerance of a small tensor: rows are its last axis but one, columns its last.
  function heatMap(failure) {
    const known = elements(failure);
    const maps = [];
    for (const tensor of [...new Set(known.map((one) => one.tensor))]) {
      const here = known.filter((one) => one.tensor === tensor);
      const column = (one) => one.index[one.index.length - 1], row = (one) => one.index.slice(0, -1).join(",");
      const rows = [...new Set(here.map(row))], columns = [...new Set(here.map(column))].sort((a, b) => a - b);
      const size = 26, margin = 70;
      const picture = draw("svg", {viewBox: `0 0 ${margin + columns.length * size + 10} ${24 + rows.length * size}`,
                                   width: margin + columns.length * size + 10, role: "img",
                                   "aria-label": `error over tolerance of ${tensor}`});
      columns.forEach((c, x) => picture.append(
        draw("text", {x: margin + x * size + size / 2, y: 14, "text-anchor": "middle"}, String(c))));
      rows.forEach((r, y) => picture.append(
        draw("text", {x: margin - 6, y: 20 + y * size + size * 0.65, "text-anchor": "end"}, r)));
      for (const one of here) {
        const x = margin + columns.indexOf(column(one)) * size, y = 20 + rows.indexOf(row(one)) * size;
        const wrong = !(one.ratio <= 1);
        const heat = wrong ? 1 : Math.max(0.04, one.ratio * 0.4);
        picture.append(draw("rect", {x, y, width: size - 2, height: size - 2, rx: 3, fill: wrong ? "#d55e00" : "#0072b2",
                                     "fill-opacity": heat},
          draw("title", {}, `${tensor}[${one.index}]: expected ${one.expected}, got ${one.actual}, ` +
                            `${short(one.ratio)} times the tolerance`)));
        if (wrong) picture.append(draw("text", {x: x + size / 2 - 1, y: y + size * 0.65, "text-anchor": "middle",
                                                style: "fill:#fff"}, "\u2715"));
      }
      maps.push(make("figure", {}, picture,
        make("figcaption", {}, `${tensor}: error over tolerance; rows ${tensor === "lse" ? "sequence, head" : "sequence, head, query"}, ` +
                               `columns ${tensor === "lse" ? "query" : "channel"}; a cross is above 1`)));
    }
    return maps;
  }
  function copyButton(text) {
    const button = make("button", {class: "copy", type: "button"}, "copy");
    button.addEventListener("click", () => {
      const done = () => { button.textContent = "copied"; };
      if (navigator.clipboard) navigator.clipboard.writeText(text).then(done, () => {});
    });
    return button;
  }
  function failureCard(record, failure) {
    const cause = record.causes[failure.cause - 1];
    const card = make("div", {class: "failure"});
    card.append(make("p", {}, make("strong", {}, failure.requirement), ` ${failure.dtype}, `,
                     make("span", {class: "verdict bad"}, `${failure.verdict}, ${failure.reason}`)));
    if (cause) card.append(make("p", {}, cause.sentence));
    if (failure.detail) card.append(make("p", {}, failure.detail));
    if (failure.worst) {
      const worst = failure.worst;
      card.append(make("p", {}, `${worst.tensor}[${worst.index}]: expected ${short(worst.expected)}, got ${short(worst.actual)}, ` +
                                `tolerance ${short(worst.tolerance)}, error / tolerance ${short(worst.ratio)}; ` +
                                `${failure.elements_failed} of ${failure.elements_compared} elements wrong` +
                                (failure.pattern ? `, ${failure.pattern}` : "")));
    }
    card.append(make("pre", {}, failure["case"]));
    card.append(...heatMap(failure));
    if (failure.numbers.length > 0)
      card.append(make("details", {}, make("summary", {}, "numbers"), make("pre", {}, failure.numbers.join("\n"))));
    if (cause && cause.diagnosis) card.append(make("p", {}, "Looks like: " + cause.diagnosis));
    if (cause) card.append(make("p", {class: "faint"}, `caught by ${cause.caught_by.join(" ")}; ` +
                                `${failure.reruns_failed}/${failure.reruns} reruns fail`));
    card.append(make("pre", {}, failure.replay, copyButton(failure.replay)));
    return card;
  }

  // The matrix feature x dtype; a cell shows what failed in it.
  function matrix(record, id) {
    const dtypes = record.scope.dtypes, features = [...new Set(record.matrix.map((cell) => cell.feature))];
    const panel = make("div", {class: "panel", id: id + "-panel", "aria-live": "polite"},
                       make("p", {class: "faint"}, "Choose a cell: by mouse, or by arrow keys and Enter."));
    const buttons = [];
    const open = (button, cell) => {
      for (const row of buttons) for (const one of row) if (one) one.setAttribute("aria-pressed", String(one === button));
      const here = record.failures.filter((failure) => failure.dtype === cell.dtype);
      const close = here.filter((failure) => {
        const cause = record.causes[failure.cause - 1];
        return cause && cause.features.includes(cell.feature);
      });
      const shown = cell.failed === 0 ? [] : close.length > 0 ? close : here;
      const failed = record.requirements.filter((one) => one.by_dtype[cell.dtype] && failing(one.by_dtype[cell.dtype]) > 0);
      panel.replaceChildren(
        make("h3", {}, `${cell.feature}, ${cell.dtype}: ${grouped(cell.failed)} of ${grouped(cell.cases)} cases fail` +
                       (cell.unsupported ? `, ${grouped(cell.unsupported)} refused` : "")),
        cell.failed > 0 ? table([left("requirement"), right("failing"), right("cases"), left("what it asks")],
          failed.map((one) => [one.id, grouped(failing(one.by_dtype[cell.dtype])), grouped(all(one.by_dtype[cell.dtype])),
                               one.sentence])) : make("p", {}, "Nothing fails here."),
        ...shown.slice(0, 20).map((failure, n) => make("details", n === 0 ? {open: ""} : {},
          make("summary", {}, `${failure.requirement}: ${failure.verdict}, ${failure.reason}: ${failure["case"]}`),
          failureCard(record, failure))),
        shown.length > 20 ? make("p", {}, `and ${shown.length - 20} more`) : "");
    };
    const body = features.map((feature, y) => {
      buttons.push([]);
      return make("tr", {}, make("th", {scope: "row"}, feature), ...dtypes.map((dtype) => {
        const cell = record.matrix.find((one) => one.feature === feature && one.dtype === dtype);
        if (!cell || cell.cases === 0) {
          buttons[y].push(null);
          return make("td", {class: "faint"}, "");
        }
        const look = cell.failed > 0 ? "bad" : cell.unsupported === cell.cases ? "" : "good";
        const text = cell.failed > 0 ? `\u2715 ${grouped(cell.failed)}/${grouped(cell.cases)}`
                     : look === "" ? "refused" : `\u2713 ${grouped(cell.cases)}`;
        const button = make("button", {type: "button", class: look, "aria-pressed": "false", tabindex: "-1",
                                       "aria-controls": id + "-panel", "data-feature": feature, "data-dtype": dtype}, text);
        button.addEventListener("click", () => open(button, cell));
        buttons[y].push(button);
        return make("td", {}, button);
      }));
    });
    const first = buttons.flat().find(Boolean);
    if (first) first.tabIndex = 0;
    const element = table([left("feature"), ...dtypes.map(left)], [], "matrix");
    element.querySelector("tbody").append(...body);
    element.addEventListener("keydown", (event) => {
      const step = {ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0]}[event.key];
      const y = buttons.findIndex((row) => row.includes(event.target));
      if (!step || y < 0) return;
      let [row, column] = [y + step[0], buttons[y].indexOf(event.target) + step[1]];
      while (buttons[row] && column in buttons[row] && !buttons[row][column]) row += step[0], column += step[1];
      const next = buttons[row] && buttons[row][column];
      if (!next) return;
      event.preventDefault();
      event.target.tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
    });
    return make("div", {}, element, panel);
  }

  // Charts.
  function mark(kind, x, y, colour, label) {
    const r = 4.5;
    const shape = {
      circle: () => draw("circle", {cx: x, cy: y, r}),
      square: () => draw("rect", {x: x - r, y: y - r, width: 2 * r, height: 2 * r}),
      diamond: () => draw("path", {d: `M${x} ${y - r - 1}l${r + 1} ${r + 1}l${-r - 1} ${r + 1}l${-r - 1} ${-r - 1}z`}),
      triangle: () => draw("path", {d: `M${x} ${y - r - 1}l${r + 1} ${2 * r}h${-2 * r - 2}z`}),
      cross: () => draw("path", {d: `M${x - r} ${y - r}l${2 * r} ${2 * r}m0 ${-2 * r}l${-2 * r} ${2 * r}`, "stroke-width": 2.5}),
      bar: () => draw("rect", {x: x - r - 1, y: y - 2, width: 2 * r + 2, height: 4})}[kind]();
    shape.setAttribute("fill", colour);
    if (kind === "cross") shape.setAttribute("stroke", colour);
    if (label) shape.append(draw("title", {}, label));
    return shape;
  }
  function legend(names) {
    return make("div", {class: "legend"}, ...names.map((name, i) => make("span", {},
      draw("svg", {width: 16, height: 14, viewBox: "0 0 16 14"}, mark(MARKS[i % MARKS.length], 8, 7, COLOURS[i % COLOURS.length])),
      " " + name)));
  }
  /// Round numbers from the last one below `low` to the first one above `high`: 1, 2 and 5 times powers of ten, or
  /// powers of two. `shown` are nine of them at most.
  function ticks(low, high, binary = false) {
    const near = 1 + 1e-9, base = binary ? 2 : 10, all = [];
    const first = Math.floor(Math.log(low) / Math.log(base)), last = Math.ceil(Math.log(high) / Math.log(base));
    for (let power = first; power <= last; ++power) for (const one of binary ? [1] : [1, 2, 5]) all.push(one * base ** power);
    while (all.length > 1 && all[1] <= low * near) all.shift();
    while (all.length > 1 && all[all.length - 2] * near >= high) all.pop();
    let shown = all;
    if (shown.length > 9 && !binary) shown = shown.filter((v) => Math.abs(Math.log10(v) - Math.round(Math.log10(v))) < 1e-9);
    while (shown.length > 9) shown = shown.filter((v, i) => i % 2 === 0);
    return {low: all[0], high: all[all.length - 1], shown};
  }
  /// series: [{points: [[x, y, label]]}], both axes logarithmic.
  function chart(caption, series, names, xName, yText, lines) {
    const points = series.flatMap((one) => one.points);
    if (points.length === 0) return null;
    const [w, h, l, b, t] = [560, 300, 72, 40, 12];
    const range = (values) => [Math.min(...values), Math.max(...values)];
    const [x0, x1] = range(points.map((p) => p[0]).concat(lines ? lines.xs : []));
    const up = ticks(...range(points.map((p) => p[1]).concat(lines ? lines.ys : [])), yText === bytes);
    const [y0, y1] = [up.low, up.high];
    const place = (v, a, z, from, to) => a === z ? (from + to) / 2
      : from + (Math.log(v) - Math.log(a)) / (Math.log(z) - Math.log(a)) * (to - from);
    const x = (v) => place(v, x0, x1, l + 10, w - 12), y = (v) => place(v, y0, y1, h - b - 8, t + 8);
    const picture = draw("svg", {viewBox: `0 0 ${w} ${h}`, role: "img", "aria-label": caption, class: "chart"});
    picture.append(draw("path", {class: "axis", fill: "none", d: `M${l} ${t}V${h - b}H${w}`}));
    for (const v of up.shown)
      picture.append(draw("path", {class: "axis", d: `M${l} ${y(v)}H${w}`}),
                     draw("text", {x: l - 6, y: y(v) + 4, "text-anchor": "end"}, yText(v)));
    for (const v of [...new Set(points.map((p) => p[0]))].slice(0, 12))
      picture.append(draw("text", {x: x(v), y: h - b + 16, "text-anchor": "middle"}, si(v)));
    picture.append(draw("text", {x: (l + w) / 2, y: h - 4, "text-anchor": "middle"}, xName));
    if (lines) for (const path of lines.paths)
      picture.append(draw("path", {class: "roof", d: path.map((p, i) => (i ? "L" : "M") + x(p[0]) + " " + y(p[1])).join("")}));
    series.forEach((one, i) => {
      const colour = COLOURS[i % COLOURS.length];
      if (one.line !== false)
        picture.append(draw("path", {fill: "none", stroke: colour, "stroke-width": 1.5,
                                     d: one.points.map((p, n) => (n ? "L" : "M") + x(p[0]) + " " + y(p[1])).join("")}));
      for (const p of one.points) picture.append(mark(MARKS[i % MARKS.length], x(p[0]), y(p[1]), colour, p[2]));
    });
    return make("figure", {}, picture, legend(names), make("figcaption", {}, caption));
  }

  /// err/T of all records side by side: 10 %, half, 90 % and the largest, on a logarithmic axis.
  function accuracy(records) {
    const rows = [];
    for (const key of [...new Set(records.flatMap((r) => r.ratios.filter((o) => o.cases > 0).map((o) => o.output + " " + o.dtype)))])
      records.forEach((record, i) => {
        const one = record.ratios.find((o) => o.output + " " + o.dtype === key && o.cases > 0);
        if (one) rows.push({key, i, one});
      });
    if (rows.length === 0) return null;
    const [w, step, l] = [760, 20, 110], h = rows.length * step + 44;
    const low = 1e-3, high = Math.max(2, ...rows.map((row) => Math.min(number(row.one.max), 1e4)));
    const x = (v) => l + Math.max(0, Math.min(1, Math.log(Math.max(v, low) / low) / Math.log(high / low))) * (w - l - 20);
    const picture = draw("svg", {viewBox: `0 0 ${w} ${h}`, role: "img", "aria-label": "error over tolerance", class: "chart wide"});
    for (const v of ticks(low, high).shown.filter((v) => v <= high))
      picture.append(draw("path", {class: "axis", d: `M${x(v)} 4V${h - 34}`}),
                     draw("text", {x: x(v), y: h - 18, "text-anchor": "middle"}, short(v)));
    picture.append(draw("path", {class: "limit", d: `M${x(1)} 4V${h - 34}`}));
    rows.forEach(({key, i, one}, n) => {
      const y = 16 + n * step, colour = COLOURS[i % COLOURS.length];
      if (n === 0 || rows[n - 1].key !== key)
        picture.append(draw("text", {x: l - 8, y: y + 4, "text-anchor": "end"}, key));
      picture.append(draw("path", {stroke: colour, "stroke-width": 3, d: `M${x(number(one.q10))} ${y}H${x(number(one.q90))}`}),
        mark(MARKS[i % MARKS.length], x(number(one.q50)), y, colour, `${title(records[i])}: half below ${short(one.q50)}`),
        draw("path", {stroke: colour, "stroke-width": 2, d: `M${x(number(one.max))} ${y - 6}v12`},
             draw("title", {}, `largest ${short(one.max)}: ${one.worst_case}`)));
    });
    return make("figure", {}, picture, legend(records.map(title)),
      make("figcaption", {}, "Worst element of each case, error over tolerance: line from 10 % to 90 %, mark at half, stroke at the largest; above 1 it fails."));
  }

  // Times.
  function valueIn(line, key, otherwise) {
    const match = new RegExp(` ${key}=(\\d+)`).exec(line);
    return match ? Number(match[1]) : otherwise;
  }
  function seriesOf(bench) {
    const known = new Map();
    for (const sample of bench.benchmarks) {
      const one = known.get(sample.name) || {sample, seconds: [], dropped: 0};
      known.set(sample.name, one);
      if (sample.dropped) ++one.dropped;
      else one.seconds.push(sample.real_time * 1e-9 * sample.yardstick);
    }
    return [...known.values()];
  }
  function speed(bench) {
    const all = seriesOf(bench), timed = all.filter((one) => one.seconds.length > 0);
    const fast = bench.context.yardsticks;
    const section = make("section", {},
      make("p", {}, `${bench.context.cpu}; ${bench.context.date}; FMA ${si(fast.fma_f32)} FLOP/s, read ${si(fast.read_bytes)}B/s`));
    const subjects = [...new Set(all.map((one) => one.sample.subject))];
    const operations = [...new Set(all.map((one) => one.sample["case"]).map((line) => line.split(" ")[0]))];
    for (const operation of operations) {
      const here = timed.filter((one) => one.sample["case"].split(" ")[0] === operation);
      const by = (value) => subjects.map((subject) => ({points: here.filter((one) => one.sample.subject === subject)
        .map((one) => value(one, median(one.seconds))).filter(Boolean).sort((a, b) => a[0] - b[0])}));
      const length = (one) => Math.max(valueIn(one.sample["case"], "lq", 1), valueIn(one.sample["case"], "lk", 1));
      const label = (one, s) => `${one.sample.subject}, ${one.sample["case"]}: ${time(s)}, ${si(one.sample.flops / s)} FLOP/s`;
      section.append(make("h3", {}, operation), make("div", {class: "columns"},
        chart("Time of one call against length, both logarithmic", by((one, s) => [length(one), s, label(one, s)]), subjects,
              "queries and keys", time) || "",
        chart("Share of the FMA rate against length, both logarithmic", by((one, s) => [length(one), one.sample.flops / s / fast.fma_f32, label(one, s)]),
              subjects, "queries and keys", (v) => +(100 * v).toPrecision(2) + " %") || "",
        roofline(here, subjects, fast, label) || ""));
    }
    section.append(table([left("case"), left("kernel"), right("time"), right("FLOP/s"), right("of FMA"), right("peak extra"),
                          right("samples"), right("dropped")],
      all.map((one) => {
        const s = one.seconds.length ? median(one.seconds) : NaN;
        return [one.sample["case"], one.sample.subject, ...(one.seconds.length
          ? [time(s), si(one.sample.flops / s), (100 * one.sample.flops / s / fast.fma_f32).toFixed(1) + " %",
             one.sample.extra_bytes > 0 ? bytes(one.sample.extra_bytes) : "-"] : ["-", "-", "-", "-"]),
          String(one.seconds.length), String(one.dropped)];
      })));
    const memory = subjects.map((subject) => ({points: all.filter((one) => one.sample.subject === subject && one.sample.extra_bytes > 0)
      .map((one) => [Math.max(valueIn(one.sample["case"], "lq", 1), valueIn(one.sample["case"], "lk", 1)), one.sample.extra_bytes,
                     `${subject}: ${bytes(one.sample.extra_bytes)}`]).sort((a, b) => a[0] - b[0])}));
    const memoryChart = chart("Peak memory beyond the tensors against length", memory, subjects, "queries and keys", bytes);
    if (memoryChart) section.append(make("h3", {}, "Memory"), memoryChart);
    if (bench.null_comparison) {
      const none = bench.null_comparison;
      section.append(make("p", {class: "faint"}, `${none.name} against itself: ${none.verdict}, ` +
        `${(100 * (none.ratio - 1)).toFixed(1)} % (${(100 * (none.low - 1)).toFixed(1)} to ${(100 * (none.high - 1)).toFixed(1)} %)`));
    }
    for (const refused of bench.refused)
      section.append(make("p", {}, make("span", {class: "verdict bad"}, "no time"), ` ${refused.subject} on ${refused["case"]}: ${refused.why}`));
    return section;
  }
  function roofline(here, subjects, fast, label) {
    const points = (subject) => here.filter((one) => one.sample.subject === subject && one.sample.bytes > 0)
      .map((one) => [one.sample.flops / one.sample.bytes, one.sample.flops / median(one.seconds), label(one, median(one.seconds))]);
    const series = subjects.map((subject) => ({line: false, points: points(subject)}));
    const xs = series.flatMap((one) => one.points.map((p) => p[0]));
    if (xs.length === 0 || !(fast.read_bytes > 0)) return null;
    const knee = fast.fma_f32 / fast.read_bytes;
    const [low, high] = [Math.min(...xs, knee) / 2, Math.max(...xs, knee) * 2];
    const paths = [[[low, low * fast.read_bytes], [knee, fast.fma_f32], [high, fast.fma_f32]]];
    return chart("Roofline: FLOP/s against FLOP/byte, useful operations over bytes of the tensors", series, subjects, "FLOP/byte",
                 (v) => si(v), {xs: [low, high], ys: [fast.fma_f32, low * fast.read_bytes], paths});
  }

  // Costs.
  function cost(record) {
    const own = record.variants[0], flops = (f) => f.matrix + f.softmax + f.other;
    const section = make("section", {}, make("p", {}, `${record.model}, ${record.phase}, ${record.dtype}, ${grouped(record.batch)} x ` +
      `${grouped(record.seq)} tokens; a multiply-add counts 2`));
    if (own.parts.length > 0)
      section.append(table([left("part"), right("matrix"), right("softmax"), right("other"), right("parameters")],
        own.parts.map((part) => [part.name, si(part.flops.matrix), si(part.flops.softmax), si(part.flops.other), si(part.parameters)])));
    section.append(table([left("heads"), left("way"), right("FLOPs"), right("bytes moved"), right("FLOP/byte"), right("peak extra"),
                          right("time by the roofline")],
      record.variants.flatMap((variant) => variant.attention.map((way) => [`${variant.heads} (${variant.kv_heads})`, way.implementation,
        si(flops(way.flops)), bytes(way.bytes), short(way.intensity), bytes(way.extra_bytes),
        way.seconds === null ? "-" : `${time(number(way.seconds))}, ${way.bound}`]))));
    if (own.parts.length > 0)
      section.append(table([left("heads"), right("a token"), right("cache")], record.variants.map((variant) =>
        [`${variant.heads} (${variant.kv_heads})`, bytes(variant.cache_bytes_per_token), bytes(variant.cache_bytes)])));
    return section;
  }

  // One run of attest check.
  function recordSection(record, i) {
    const id = "record-" + i;
    const section = make("section", {id}, make("h2", {}, title(record), " ", verdict(record.verdict)));
    section.append(make("p", {class: "faint"}, `suite ${record.suite}, seed ${record.seed}, ${record.times.started}, attest ${record.tool.version} ` +
      `(${record.tool.commit.slice(0, 10)}), ${record.machine.cpu}`));
    for (const cause of record.causes) {
      const smallest = record.failures[cause.smallest];
      section.append(make("details", cause.id === 1 ? {open: ""} : {},
        make("summary", {}, `${cause.id}. ${cause.verdict}, ${cause.reason}: ${cause.sentence} (${cause.dtypes.join(" ")}, ${grouped(cause.cases)} cases)`),
        smallest ? failureCard(record, smallest) : ""));
    }
    section.append(make("h3", {}, "Features and types"), matrix(record, id));
    const facts = [`precision ${record.scope.precision}`,
      `audit: ${grouped(record.audit.rows)} rows recomputed by the definition, ${record.audit.outside} of ${grouped(record.audit.elements)} elements outside`];
    if (record.pairs.possible > 0)
      facts.push(`${grouped(record.pairs.covered)} of ${grouped(record.pairs.possible)} pairs of features were tested together`);
    facts.push(...record.memory.map((one) => `${one.operation} at ${grouped(one.q_len)} queries: ${bytes(one.extra_bytes)} beyond ${bytes(one.tensor_bytes)} of tensors`));
    facts.push(...record.kv_cache.map((one) => `${one.heads}, ${one.rows} rows of ${one.num_kv_heads} heads: ${bytes(one.written_bytes)} in the cache`));
    facts.push(...record.notes);
    section.append(make("details", {}, make("summary", {}, "Scope, audit, memory"),
      make("ul", {}, ...facts.map((fact) => make("li", {}, fact))),
      record.scope.not_tested.length ? make("p", {class: "faint"}, "Not tested: " + record.scope.not_tested.join("; ")) : ""));
    section.append(make("details", {}, make("summary", {}, `${record.requirements.length} requirements`),
      table([left("requirement"), right("cases"), right("failing"), left("what it asks"), left("skipped")],
        record.requirements.map((one) => [one.id, grouped(all(one.counts)), grouped(failing(one.counts)), one.sentence, one.skipped]))));
    return section;
  }

  const of = (schema) => documents.filter((one) => one.schema.startsWith(schema + "/"));
  const records = of("attest.record"), benches = of("attest.bench"), costs = of("attest.cost");
  const links = make("nav", {"aria-label": "sections"});
  const link = (id, text) => links.append(make("a", {href: "#" + id}, text));
  page.append(links);
  if (records.length > 0) {
    link("verdicts", "Verdicts");
    page.append(make("section", {id: "verdicts"}, verdicts(records)));
    records.forEach((record, i) => {
      link("record-" + i, title(record));
      page.append(recordSection(record, i));
    });
    const picture = accuracy(records);
    if (picture) {
      link("accuracy", "Accuracy");
      page.append(make("section", {id: "accuracy"}, make("h2", {}, "Accuracy"), picture));
    }
  }
  benches.forEach((bench, i) => {
    link("speed-" + i, "Speed");
    page.append(make("section", {id: "speed-" + i}, make("h2", {}, "Speed"), speed(bench)));
  });
  costs.forEach((record, i) => {
    link("cost-" + i, "Cost");
    page.append(make("section", {id: "cost-" + i}, make("h2", {}, "Cost"), cost(record)));
  });
})();
