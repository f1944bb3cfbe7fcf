(() => {
  const found = [];
  const say = (rule, element) => found.push(`${rule}: ${element.outerHTML.slice(0, 90)}`);
  const seen = (e) => e.getClientRects().length > 0 && getComputedStyle(e).visibility === "visible";
  const named = (e) => e.textContent.trim() || e.getAttribute("aria-label") || e.title
    || e.closest("label") || (e.id && document.querySelector(`label[for="${e.id}"]`));
  const all = (selector) => [...document.querySelectorAll(selector)].filter(seen);
  if (!document.documentElement.lang) say("html-lang", document.documentElement);
  if (!document.title.trim()) say("title", document.head);
  if (all("main").length !== 1) say("one-main", document.body);
  if (/user-scalable=no|maximum-scale/.test(document.querySelector("meta[name=viewport]")?.content ?? "")) say("zoom", document.head);
  for (const e of all("a[href], button, input, select, textarea, summary, progress, canvas")) if (!named(e)) say("name", e);
  for (const e of all("img, [role=img]")) if (!(e.alt || e.getAttribute("aria-label") || e.querySelector("title"))) say("alt", e);
  const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
  for (const id of new Set(ids.filter((id, i) => ids.indexOf(id) !== i))) say("one-id", document.getElementById(id));
  for (const e of all("[aria-labelledby], [aria-controls], [aria-describedby]"))
    for (const name of ["aria-labelledby", "aria-controls", "aria-describedby"])
      for (const id of (e.getAttribute(name) ?? "").split(/\s+/).filter(Boolean)) if (!document.getElementById(id)) say(name, e);
  let level = 0;
  for (const e of all("h1, h2, h3, h4, h5, h6")) {
    if (Number(e.tagName[1]) > level + 1) say("heading-order", e);
    level = Number(e.tagName[1]);
  }
  for (const e of all("table")) if (e.rows.length && !e.querySelector("th")) say("table-headers", e);
  for (const e of all("[tabindex]")) if (e.tabIndex > 0) say("tabindex", e);
  // 24 pixels for what is pressed, unless it stands in a sentence or a table.
  for (const e of all("nav a, button, select, input")) {
    const box = e.getBoundingClientRect();
    if ((box.height < 23.5 || box.width < 23.5) && !e.closest("p, td, th, li") && e.type !== "range") say("target-size", e);
  }
  // WCAG 2's contrast of text with what is behind it.
  const rgb = (text) => (text.match(/[\d.]+/g) ?? []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (e) => {
    for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c.length === 3 || c[3] === 1) return c; }
    return [255, 255, 255];
  };
  for (const e of all("body *:not(svg *)")) {
    if (![...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim())) continue;
    const style = getComputedStyle(e), size = parseFloat(style.fontSize);
    if (parseFloat(style.opacity) < 1 || e.closest("script, style, [disabled]")) continue;
    const [a, b] = [light(rgb(style.color)), light(behind(e))].sort((x, y) => y - x);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if ((a + 0.05) / (b + 0.05) < (large ? 3 : 4.5)) say("contrast", e);
  }
  return found;
})()
