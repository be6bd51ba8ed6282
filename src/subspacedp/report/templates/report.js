"use strict";
(() => {
  const PAGE = 25;
  const PRINTED = 100;
  const order = new Intl.Collator("en", { numeric: true });
  const whole = new Intl.NumberFormat("en-US");

  // Labels are anybody's text: they are only ever set as text, never as markup.
  function element(name, text, kind) {
    const made = document.createElement(name);
    made.textContent = text;
    if (kind) made.className = kind;
    return made;
  }

  function formatter(digits) {
    const format = new Intl.NumberFormat("en-US", {
      minimumFractionDigits: digits, maximumFractionDigits: digits,
    });
    return (value) => {
      if (value === null) return "–";
      if (typeof value === "string") return whole.format(BigInt(value));
      const text = format.format(value);
      return /[1-9]/.test(text) ? text : text.replace("-", "");
    };
  }

  function compareNumbers(a, b) {
    if (a === null || b === null) return (a === null) - (b === null);
    return Number(a) - Number(b);
  }

  function quoted(field) {
    const text = field === null ? "" : String(field);
    return /[",\r\n]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
  }

  function setUp(root) {
    const data = JSON.parse(document.getElementById(root.dataset.cells).textContent);
    const columns = [
      ...data.labels.map((c) => ({
        name: c.name, kind: "",
        raw: (i) => c.texts[c.codes[i]],
        text: (i) => c.texts[c.codes[i]],
        compare: (i, j) => order.compare(c.texts[c.codes[i]], c.texts[c.codes[j]]),
      })),
      ...data.numbers.map((c) => {
        const format = formatter(c.digits);
        return {
          name: c.name, kind: `number ${c.name}`,
          raw: (i) => c.values[i],
          text: (i) => format(c.values[i]),
          compare: (i, j) => compareNumbers(c.values[i], c.values[j]),
        };
      }),
    ];
    const count = data.numbers[0].values.length;
    const all = Array.from({ length: count }, (_, i) => i);
    const searched = all.map((i) =>
      data.labels.map((c) => c.texts[c.codes[i]].toLowerCase()).join("\n"));
    const find = (query) => root.querySelector(query);
    const body = find("tbody");
    const state = { words: [], column: -1, down: false, start: 0 };
    let rows = all;

    function select() {
      rows = all.filter((i) => state.words.every((word) => searched[i].includes(word)));
      if (state.column >= 0) {
        const { compare } = columns[state.column];
        rows.sort((i, j) => (state.down ? compare(j, i) : compare(i, j)) || i - j);
      }
      state.start = 0;
      draw();
    }

    function draw(length = PAGE) {
      const shown = rows.slice(state.start, state.start + length);
      body.replaceChildren(...shown.map((i) => {
        const row = document.createElement("tr");
        row.append(...columns.map((c) => element("td", c.text(i), c.kind)));
        return row;
      }));
      const found = rows.length === count
        ? whole.format(count) : `${whole.format(rows.length)} found among ${whole.format(count)}`;
      find("[role=status]").textContent = rows.length
        ? `Rows ${whole.format(state.start + 1)} to ${whole.format(state.start + shown.length)} of ${found}.`
        : "No row has these words.";
      find(".back").disabled = state.start === 0;
      find(".on").disabled = state.start + length >= rows.length;
    }

    function turn(by) {
      state.start = Math.max(0, state.start + by);
      draw();
      find(".scroll").scrollTop = 0;
    }

    function download() {
      const lines = [columns.map((c) => quoted(c.name)).join(",")];
      for (const i of rows) lines.push(columns.map((c) => quoted(c.raw(i))).join(","));
      const file = new Blob([lines.join("\r\n") + "\r\n"], { type: "text/csv" });
      const link = document.createElement("a");
      link.href = URL.createObjectURL(file);
      link.download = data.file;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    }

    root.querySelectorAll("thead th").forEach((head, at) => {
      const button = element("button", head.textContent);
      button.type = "button";
      button.addEventListener("click", () => {
        // First ascending, then descending, then the order of the files.
        if (state.column !== at) Object.assign(state, { column: at, down: false });
        else if (!state.down) state.down = true;
        else state.column = -1;
        root.querySelectorAll("thead th").forEach((other, place) => {
          if (place !== state.column) other.removeAttribute("aria-sort");
          else other.setAttribute("aria-sort", state.down ? "descending" : "ascending");
        });
        select();
      });
      // Buttons are not repeated on the pages of a print, words are.
      head.replaceChildren(button, element("span", button.textContent, "printed"));
    });
    find("input").addEventListener("input", (event) => {
      state.words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
      select();
    });
    find(".back").addEventListener("click", () => turn(-PAGE));
    find(".on").addEventListener("click", () => turn(PAGE));
    find(".download").addEventListener("click", download);
    addEventListener("beforeprint", () => { state.start = 0; draw(PRINTED); });
    addEventListener("afterprint", () => draw());
    find(".controls").hidden = false;
    find(".turn").hidden = count <= PAGE;
    draw();
  }

  document.querySelectorAll("[data-cells]").forEach(setUp);

  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    closed.forEach((part) => { part.open = true; });
  });
  addEventListener("afterprint", () => closed.forEach((part) => { part.open = false; }));
})();
