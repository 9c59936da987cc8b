// The console in the browser: times in the viewer's zone, the theme, keys, and live parts.
(() => {
  "use strict";
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];

  // Times: UTC in the HTML (and on hover), the viewer's zone on the page.
  const sameDay = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
  const otherDay = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
  const showTimes = (root) => {
    const today = new Date().toDateString();
    for (const one of all("time[datetime]", root)) {
      const moment = new Date(one.dateTime);
      if (Number.isNaN(moment.getTime())) continue;
      one.textContent = (moment.toDateString() === today ? sameDay : otherDay).format(moment);
    }
  };

  // Forms with a local time send it in UTC.
  const pad = (number) => String(number).padStart(2, "0");
  const asLocal = (moment) =>
    `${moment.getFullYear()}-${pad(moment.getMonth() + 1)}-${pad(moment.getDate())}` +
    `T${pad(moment.getHours())}:${pad(moment.getMinutes())}:${pad(moment.getSeconds())}`;
  const prepareLocalTimes = () => {
    for (const one of all("input[data-local-time]")) {
      if (one.value) one.value = asLocal(new Date(`${one.value}Z`));
      one.form.addEventListener("formdata", (event) => {
        const given = event.formData.get(one.name);
        if (given) event.formData.set(one.name, new Date(given).toISOString());
      });
    }
  };

  // Theme: system, light, dark.
  const themes = ["system", "light", "dark"];
  const showTheme = () => {
    const theme = document.documentElement.dataset.theme || "system";
    for (const one of all("[data-theme-name]")) one.textContent = theme;
  };
  const nextTheme = () => {
    const current = document.documentElement.dataset.theme || "system";
    const next = themes[(themes.indexOf(current) + 1) % themes.length];
    if (next === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = next;
    try { localStorage.setItem("penstock-theme", next); } catch { /* no storage */ }
    showTheme();
  };

  // Live parts: not replaced while the viewer uses them, or has paused them. They catch up after it.
  let paused = false;
  let missed = null;
  const inUse = (element) => {
    const selection = document.getSelection();
    if (selection && !selection.isCollapsed && element.contains(selection.anchorNode)) return true;
    const active = document.activeElement;
    return active !== null && active !== document.body && element.contains(active) &&
      active.matches("input, textarea, select, a, button, summary");
  };
  const keepPlace = new WeakMap();
  document.addEventListener("htmx:sseBeforeMessage", (event) => {
    const element = event.target;
    if (element.id !== "live") return;
    if (paused || inUse(element)) { missed = event.detail.data; event.preventDefault(); return; }
    missed = null;
    // where the regions were scrolled to, and which parts were open
    keepPlace.set(element, {
      scrolled: all("[role=region]", element).map((one) => [one.scrollLeft, one.scrollTop]),
      zoom: zoomed,
    });
  });
  document.addEventListener("htmx:sseMessage", (event) => {
    const element = event.target;
    showTimes(element);
    const place = keepPlace.get(element);
    if (element.id !== "live" || !place) return;
    all("[role=region]", element).forEach((one, index) => {
      if (place.scrolled[index]) [one.scrollLeft, one.scrollTop] = place.scrolled[index];
    });
    applyZoom();
  });
  const catchUp = () => {
    const live = document.getElementById("live");
    if (missed === null || paused || !live || inUse(live)) return;
    htmx.swap(live, missed, { swapStyle: "innerHTML" });
    missed = null;
    showTimes(live);
    applyZoom();
  };
  document.addEventListener("focusout", () => { setTimeout(catchUp); });
  document.addEventListener("selectionchange", catchUp);
  // The stream of events. A browser has six connections to a host, for all its tabs: a tab that
  // nobody looks at gives its own back, and opens one again when it is looked at.
  const away = { source: null, timer: 0, warning: 0 };
  htmx.createEventSource = (url) => (away.source = new EventSource(url));
  document.addEventListener("visibilitychange", () => {
    clearTimeout(away.timer);
    if (document.hidden) away.timer = setTimeout(() => away.source && away.source.close(), 20000);
    else if (away.source && away.source.readyState === EventSource.CLOSED) {
      away.source.onerror(new Event("error")); // htmx opens another
    }
  });
  const warn = (shown) => { document.getElementById("connection").hidden = !shown; };
  document.addEventListener("htmx:sseError", () => {
    away.warning ||= setTimeout(() => warn(!document.hidden), 1500);
  });
  document.addEventListener("htmx:sseOpen", () => {
    clearTimeout(away.warning);
    away.warning = 0;
    warn(false);
  });
  const togglePause = (button) => {
    paused = !paused;
    button.setAttribute("aria-pressed", String(paused));
    button.textContent = paused ? "Paused: follow" : "Following live: pause";
    catchUp();
  };

  // The graph of a pipeline.
  let zoomed = 1;
  const applyZoom = () => {
    for (const one of all(".picture svg.graph")) {
      const { width, height } = one.viewBox.baseVal;
      one.setAttribute("width", Math.round(width * zoomed));
      one.setAttribute("height", Math.round(height * zoomed));
    }
  };
  const zoom = (how) => {
    const picture = document.querySelector(".picture");
    const graph = picture && picture.querySelector("svg.graph");
    if (!graph) return;
    if (how === "fit") zoomed = Math.min(1, (picture.clientWidth - 24) / graph.viewBox.baseVal.width);
    else zoomed = Math.min(3, Math.max(0.2, zoomed * (how === "in" ? 1.25 : 0.8)));
    applyZoom();
  };

  // Several dead letters at once.
  const countSelected = (form) => {
    const boxes = all("input[name=key]", form);
    const selected = boxes.filter((one) => one.checked).length;
    const status = form.querySelector("[data-selected]");
    if (status) status.textContent = selected ? `${selected} selected` : "none selected";
    const every = form.querySelector("[data-select-all]");
    if (every) {
      every.checked = selected > 0 && selected === boxes.length;
      every.indeterminate = selected > 0 && selected < boxes.length;
    }
  };

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button, a");
    if (!button) return;
    if (button.hasAttribute("data-theme-toggle")) nextTheme();
    else if (button.hasAttribute("data-pause")) togglePause(button);
    else if (button.dataset.zoom) zoom(button.dataset.zoom);
    else if (button.hasAttribute("data-expand")) {
      const parts = all(".json details", button.closest("section"));
      const open = parts.some((one) => !one.open);
      for (const one of parts) one.open = open;
      button.textContent = open ? "Collapse all" : "Expand all";
    } else if (button.hasAttribute("data-menu")) {
      const open = document.body.classList.toggle("menu-open");
      button.setAttribute("aria-expanded", String(open));
    } else if (button.hasAttribute("data-back") && history.length > 1) {
      event.preventDefault();
      history.back();
    }
  });
  document.addEventListener("change", (event) => {
    const form = event.target.closest("form[data-bulk]");
    if (!form) return;
    if (event.target.hasAttribute("data-select-all")) {
      for (const one of all("input[name=key]", form)) one.checked = event.target.checked;
    }
    countSelected(form);
  });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.matches("input, textarea, select")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (event.key === "/") {
      const search = document.querySelector("[data-shortcut='/']");
      if (search) { event.preventDefault(); search.focus(); }
    }
  });
  document.addEventListener("DOMContentLoaded", () => {
    showTimes(document);
    showTheme();
    prepareLocalTimes();
    zoom("fit");
    if (zoomed < 0.55) { zoomed = 0.55; applyZoom(); } // a phone shows a part that can be read
    for (const form of all("form[data-bulk]")) countSelected(form);
  });
})();
