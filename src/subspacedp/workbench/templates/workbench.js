"use strict";
(() => {
  // The specification lives on the server; this page shows it, and says what was pressed.
  const find = (query, of = document) => of.querySelector(query);
  const yaml = find("#yaml");
  let version = Number(document.body.dataset.version);
  let typed = false; // text in the YAML that the server does not have yet
  let sending = false; // one change at a time: the next one says the latest
  let waiting = null; // what is to be sent when the answer is there
  let asked = 0; // when the design was last asked for
  let pressed = false; // a pointer or key is down: what it is on must not go away under it
  let held = {}; // regions that wait until it is let go
  const PATIENCE = 1500; // milliseconds after which a newer change drops one that takes long

  function say(text) {
    const said = find("#said");
    said.textContent = text || "";
    said.hidden = !text;
  }

  // A region is replaced as a whole; what is being typed in it, and where the reader is, stays.
  function replace(name, html) {
    const region = find(`[data-region="${name}"]`);
    if (!region) return;
    const active = region.contains(document.activeElement) ? document.activeElement : null;
    const kept = new Map();
    for (const field of region.querySelectorAll("input[id][data-keep], select[id][data-keep]")) {
      if (field.value !== field.defaultValue) kept.set(field.id, field.value);
    }
    const focus = active && active.id ? {
      id: active.id,
      value: "value" in active && active.matches("input:not([type=range]):not([type=checkbox])") &&
        active.value !== active.defaultValue ? active.value : null,
      start: active.selectionStart, end: active.selectionEnd,
    } : null;
    const opened = new Map([...region.querySelectorAll("details")].map((one, i) => [one.id || i, one.open]));
    const scrolled = [...region.querySelectorAll(".scroll, .chosen")].map(
      (one) => [one.scrollLeft, one.scrollTop]);
    region.innerHTML = html;
    region.querySelectorAll("details").forEach((one, i) => {
      if (opened.has(one.id || i)) one.open = opened.get(one.id || i);
    });
    region.querySelectorAll(".scroll, .chosen").forEach((one, i) => {
      if (scrolled[i]) [one.scrollLeft, one.scrollTop] = scrolled[i];
    });
    for (const [id, value] of kept) {
      const field = document.getElementById(id);
      if (field) field.value = value;
    }
    ready(region);
    if (focus) {
      const field = document.getElementById(focus.id);
      if (field && !field.disabled) {
        if (focus.value !== null) field.value = focus.value;
        field.focus({ preventScroll: true });
        if (focus.start !== null && focus.start !== undefined && field.setSelectionRange &&
            field.matches("input:not([type=range]):not([type=checkbox])")) {
          field.setSelectionRange(focus.start, focus.end);
        }
      } else if (active !== document.body) {
        const near = find("#work", region) || find("button:not(:disabled), input:not(:disabled)", region);
        if (near) near.focus({ preventScroll: true });
      }
    }
    enter(region);
  }

  function show(news) {
    // An answer that was overtaken says nothing that a later one did not.
    if (news.version < version) { if (news.shown || !news.busy) next(); return; }
    version = news.version;
    for (const [name, html] of Object.entries(news.regions)) {
      if (pressed) held[name] = html;
      else replace(name, html);
    }
    if (!typed && document.activeElement !== yaml && yaml.value !== news.text) yaml.value = news.text;
    if (document.activeElement === yaml && !typed && yaml.value !== news.text) {
      const at = yaml.selectionStart;
      yaml.value = news.text;
      yaml.setSelectionRange(at, at);
    }
    const notice = find("#notice");
    find("span", notice).textContent = news.notice;
    notice.hidden = !news.notice;
    document.body.classList.toggle("busy", news.busy);
    if (news.shown || !news.busy) next();
  }

  const BROKEN = "This page cannot be shown, by an error in the workbench, and what it shows may be old. The " +
    "specification is unharmed: save it, and go on with subspacedp plan, or undo the last change.";

  async function ask(address, options) {
    const answer = await fetch(address, { ...options, cache: "no-store", credentials: "same-origin" });
    if (!answer.ok) throw Object.assign(new Error(await answer.text()), { answered: true });
    return answer.json();
  }

  async function send(form) {
    sending = true;
    asked = Date.now();
    try {
      const news = await ask("do", {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ ...form, after: version }),
      });
      if (form.do === "text" && yaml.value === form.text) typed = false;
      say(news.said);
      if (/^(add-|steps$)/.test(form.do) && !news.said) {
        document.querySelectorAll("form[data-do] input[data-keep]").forEach((field) => {
          if (field.form.dataset.do === form.do && field.value === form[field.name]) field.value = "";
        });
      }
      show(news);
    } catch (error) {
      say(error.answered ? BROKEN : "The workbench does not answer. What was saved is in its file, and " +
        "what was not in a copy beside it; start it again to go on.");
      sending = false;
    }
  }

  // While a design is worked out only the latest change waits; after a while it takes the turn.
  function change(form) {
    if (sending && Date.now() - asked < PATIENCE && (form.do === "budget" || form.do === "text")) {
      waiting = form;
      setTimeout(() => { if (waiting === form) next(true); }, PATIENCE);
      return;
    }
    if (waiting) { const before = waiting; waiting = null; send(before).then(() => send(form)); return; }
    send(form);
  }

  function next() {
    sending = false;
    if (waiting) { const form = waiting; waiting = null; send(form); }
  }

  async function listen() {
    for (;;) {
      try {
        show(await ask(`news?after=${version}`));
      } catch (error) {
        if (document.visibilityState === "hidden" || document.body.classList.contains("leaving")) return;
        say(error.answered ? BROKEN : "The workbench has ended. What was not saved is in a copy beside the " +
          "file; start it again to go on.");
        await new Promise((done) => setTimeout(done, 2000));
        try { await ask(`news?after=0`); say(""); } catch (again) { /* still gone */ }
      }
    }
  }

  // ------------------------------------------------------------------------------ the controls

  function formOf(element) {
    return { do: element.dataset.do, ...(element.dataset.form ? JSON.parse(element.dataset.form) : {}) };
  }

  document.addEventListener("click", (event) => {
    const line = event.target.closest("[data-line]");
    if (line) { toLine(Number(line.dataset.line)); return; }
    const button = event.target.closest("button[data-do]");
    if (button) change(formOf(button));
  });

  document.addEventListener("change", (event) => {
    const field = event.target;
    if (field.matches("#axis-kind")) kinds(field);
    if (field.matches("[data-slider]")) return;
    if (!field.matches("input[data-do], select[data-do]")) return;
    const value = field.type === "checkbox" ? field.checked : field.value;
    change({ ...formOf(field), [field.dataset.name || "value"]: value });
  });

  document.addEventListener("submit", (event) => {
    event.preventDefault();
    const fields = Object.fromEntries(new FormData(event.target).entries());
    change({ ...fields, ...formOf(event.target) });
  });

  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input:not([type=range]):not([type=checkbox]), textarea");
    if (!typing && (event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "z") {
      event.preventDefault();
      change({ do: event.shiftKey ? "redo" : "undo" });
    }
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "s") {
      event.preventDefault();
      flush();
      change({ do: "save" });
    }
    const square = event.target.closest("[data-matrix] .square");
    if (square) walk(square, event);
  });

  // The slider is logarithmic; three digits are enough for a budget.
  function slide(slider) {
    const { low, high, unit } = slider.dataset;
    const amount = Number((Number(low) * (Number(high) / Number(low)) ** (slider.value / 1000))
      .toPrecision(3));
    const words = unit === "odds"
      ? `odds of ${Number(Math.exp(amount).toPrecision(3)).toLocaleString("en-US")} : 1`
      : `${unit} = ${amount}`;
    find("#amount-words").textContent = words;
    slider.setAttribute("aria-valuetext", words);
    const exact = find("#amount");
    if (exact) exact.value = amount;
    change({ do: "budget", amount, dial: find("#dial").value });
  }
  document.addEventListener("input", (event) => {
    if (event.target.matches("[data-slider]")) slide(event.target);
    if (event.target.matches("[data-find]")) search(event.target);
    if (event.target === yaml) { typed = true; clearTimeout(timer); timer = setTimeout(flush, 350); state(); }
  });
  addEventListener("pointerdown", () => { pressed = true; });
  addEventListener("keydown", (event) => { pressed ||= event.key === " "; }); // its key-up presses
  for (const end of ["pointerup", "pointercancel", "keyup", "blur"]) {
    addEventListener(end, () => setTimeout(letGo)); // after the click that it makes
  }
  function letGo() {
    pressed = false;
    const waited = held;
    held = {};
    for (const [name, html] of Object.entries(waited)) replace(name, html);
  }

  // ------------------------------------------------------------------------------- the YAML

  let timer = 0;
  function flush() {
    clearTimeout(timer);
    if (typed) change({ do: "text", text: yaml.value });
  }
  function state() {
    const line = yaml.value.slice(0, yaml.selectionStart).split("\n").length;
    find("#yaml-state").textContent = `Line ${line}`;
  }
  yaml.addEventListener("blur", flush);
  yaml.addEventListener("keyup", state);
  yaml.addEventListener("click", state);
  addEventListener("pagehide", () => {
    document.body.classList.add("leaving");
    if (typed) {
      fetch("do", {
        method: "POST", keepalive: true, credentials: "same-origin",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ do: "text", text: yaml.value, after: version }),
      });
    }
  });
  addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });

  function toLine(number) {
    const lines = yaml.value.split("\n");
    const start = lines.slice(0, number - 1).reduce((sum, line) => sum + line.length + 1, 0);
    yaml.focus();
    yaml.setSelectionRange(start, start + (lines[number - 1] || "").length);
    yaml.scrollTop = (number - 4) * parseFloat(getComputedStyle(yaml).lineHeight);
    yaml.scrollIntoView({ block: "center" });
    state();
  }

  // ------------------------------------------------------------------------ the grid of margins

  const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  function walk(square, event) {
    const step = ARROWS[event.key];
    if (!step) return;
    event.preventDefault();
    const place = (one) => one.id.split("-").slice(1).map(Number);
    const [row, column] = place(square);
    const far = (one) => Math.abs(place(one)[0] - row) + Math.abs(place(one)[1] - column) * 1000;
    const [to] = [...square.closest("[data-matrix]").querySelectorAll(".square")].filter((one) => {
      const [down, right] = [place(one)[0] - row, place(one)[1] - column];
      return step[0] ? down * step[0] > 0 : down === 0 && right * step[1] > 0;
    }).sort((one, other) => far(one) - far(other));
    if (to) { rove(to); to.focus(); }
  }
  function rove(to) {
    to.closest("[data-matrix]").querySelectorAll(".square").forEach((one) => { one.tabIndex = -1; });
    to.tabIndex = 0;
  }
  // The square that Tab comes to: the one that is focused, or the first.
  function enter(region) {
    const matrix = find("[data-matrix]", region);
    if (matrix) {
      const inside = matrix.contains(document.activeElement) ? document.activeElement : null;
      const first = inside || find(".square", matrix);
      if (first) rove(first);
    }
  }
  // What a page draws by itself, before the focus returns to it.
  function ready(region) {
    const field = find("[data-find]", region);
    if (field && field.value) search(field);
    if (find("#axis-kind", region)) kinds(find("#axis-kind", region));
  }

  // An axis is said in the words of its kind: fields of the others are put away, and not sent.
  function kinds(choice) {
    choice.form.querySelectorAll("[data-for]").forEach((one) => {
      one.hidden = one.dataset.for !== choice.value;
      for (const field of one.querySelectorAll("input, select")) field.disabled = one.hidden;
    });
  }

  // Every word may be the beginning of an axis or level; each axis is taken once.
  function search(field) {
    const chains = JSON.parse(field.dataset.chains);
    const words = field.value.toLowerCase().split(/[\s,×]+/).filter(Boolean);
    let found = words.length ? [[]] : [];
    for (const word of words) {
      const able = chains.filter(([, level]) => level.toLowerCase().startsWith(word));
      found = found.flatMap((one) => able
        .filter(([axis]) => !one.some(([taken]) => taken === axis))
        .map((pair) => [...one, pair])).slice(0, 200);
    }
    const order = new Map(chains.map(([, level], i) => [level, i]));
    const seen = new Set();
    const items = [];
    for (const one of found) {
      const names = one.map(([, level]) => level).sort((a, b) => order.get(a) - order.get(b));
      const key = JSON.stringify(names);
      if (seen.has(key) || items.length >= 12) continue;
      seen.add(key);
      const item = document.createElement("li");
      for (const [state, text] of [["published", `Publish ${names.join(" × ")}`], ["held", "hold"]]) {
        const button = document.createElement("button");
        button.type = "button";
        button.id = `found-${state}-${key}`;
        button.textContent = text;
        if (state === "held") button.setAttribute("aria-label", `Hold ${names.join(" × ")} exactly`);
        button.dataset.do = "margin";
        button.dataset.form = JSON.stringify({ names, state, table: field.dataset.table });
        item.append(button, " ");
      }
      items.push(item);
    }
    if (words.length && !items.length) {
      const none = document.createElement("li");
      none.textContent = "No axis or level begins like that.";
      items.push(none);
    }
    find("#found").replaceChildren(...items);
  }

  document.querySelectorAll("[data-region]").forEach((region) => { ready(region); enter(region); });
  listen();
})();
