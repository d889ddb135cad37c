// Times in the viewer's zone, live updates, what a chart says where one points, and a box that ticks all. The pages
// work without it.
"use strict";
(() => {
  const shown = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
  const today = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
  const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "long" });

  function localise(root) {
    for (const el of root.querySelectorAll("time[datetime]")) {
      const at = new Date(el.dateTime);
      if (Number.isNaN(at.getTime())) continue;
      el.textContent = (at.toDateString() === new Date().toDateString() ? today : shown).format(at);
      el.title = exact.format(at) + " (" + el.dateTime + ")";
    }
  }

  // What was last sent for a part is kept, so that a part that did not change
  // keeps its place, what is open in it, and what is selected.
  const sent = new Map();

  function take(html) {
    const next = new DOMParser().parseFromString(html, "text/html");
    for (const part of next.querySelectorAll("section[id]")) {
      const old = document.getElementById(part.id);
      if (!old || sent.get(part.id) === part.outerHTML) continue;
      sent.set(part.id, part.outerHTML);
      const fresh = document.importNode(part, true);
      for (const d of fresh.querySelectorAll("details[id]")) {
        const before = document.getElementById(d.id);
        if (before && before.open) d.open = true;
      }
      localise(fresh);
      if (fresh.outerHTML === old.outerHTML) continue;
      const focused = old.contains(document.activeElement) ? place(old, document.activeElement) : -1;
      const scrolled = [...old.querySelectorAll(".scroll, .events")].map((e) => [e.scrollLeft, e.scrollTop]);
      old.replaceWith(fresh);
      [...fresh.querySelectorAll(".scroll, .events")].forEach((e, i) => { if (scrolled[i]) [e.scrollLeft, e.scrollTop] = scrolled[i]; });
      if (focused >= 0) fresh.querySelectorAll(reachable)[focused]?.focus({ preventScroll: true });
    }
  }

  // What a chart says of the minute that is pointed at, or chosen with the arrows.
  function say(rect) {
    const chart = rect.closest(".chart");
    chart.querySelector("rect.at")?.classList.remove("at");
    rect.classList.add("at");
    chart.querySelector("output").textContent = rect.dataset.text;
  }

  function charts() {
    document.addEventListener("pointerover", (e) => { if (e.target.matches?.(".chart rect")) say(e.target); });
    document.addEventListener("keydown", (e) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[e.key];
      if (!step || !e.target.matches?.(".chart svg")) return;
      const all = [...e.target.querySelectorAll("rect")];
      const at = all.findIndex((r) => r.classList.contains("at"));
      const next = all[at < 0 ? all.length - 1 : Math.max(0, Math.min(all.length - 1, at + step))];
      if (next) say(next);
      e.preventDefault();
    });
  }

  const reachable = "a[href], summary, [tabindex]";
  function place(root, el) { return [...root.querySelectorAll(reachable)].indexOf(el); }

  function follow() {
    const from = document.body.dataset.live;
    const word = document.getElementById("live");
    if (!from || !word || !window.EventSource) return;
    const source = new EventSource(from);
    source.onmessage = (e) => { take(e.data); word.textContent = "Live."; };
    source.onerror = () => { word.textContent = "The connection was lost: these numbers are old."; };
    addEventListener("pagehide", () => source.close());
    addEventListener("pageshow", (e) => { if (e.persisted) location.reload(); });
  }

  function tickAll() {
    const all = document.getElementById("all");
    if (!all) return;
    all.parentElement.hidden = false;
    all.addEventListener("change", () => {
      for (const box of all.form.querySelectorAll("input[name=id]")) box.checked = all.checked;
    });
  }

  localise(document);
  follow();
  charts();
  tickAll();
})();
