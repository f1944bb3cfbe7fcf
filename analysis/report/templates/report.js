"use strict";
(() => {
  // Tips: one box for all marks, beside the pointer, inside the window.
  const tip = document.getElementById("tip");
  const place = (event) => {
    const { width, height } = tip.getBoundingClientRect();
    let x = event.clientX + 14;
    let y = event.clientY + 16;
    if (x + width > innerWidth - 8) x = Math.max(8, event.clientX - width - 14);
    if (y + height > innerHeight - 8) y = Math.max(8, event.clientY - height - 12);
    tip.style.left = `${x}px`;
    tip.style.top = `${y}px`;
  };
  document.addEventListener("pointermove", (event) => {
    const mark = event.target.closest?.("[data-tip]");
    tip.hidden = !mark;
    if (mark) {
      tip.textContent = mark.dataset.tip;
      place(event);
    }
  });
  document.addEventListener("scroll", () => { tip.hidden = true; }, { passive: true, capture: true });

  // Views: one of a panel's drawings at a time.
  for (const bar of document.querySelectorAll(".views")) {
    const buttons = [...bar.children];
    const views = [...bar.parentElement.querySelectorAll(":scope > .view")];
    bar.addEventListener("click", (event) => {
      const chosen = buttons.indexOf(event.target);
      if (chosen < 0) return;
      buttons.forEach((button, i) => button.setAttribute("aria-selected", String(i === chosen)));
      views.forEach((view, i) => { view.hidden = i !== chosen; });
    });
  }

  // Sorting: numbers by value, texts as people sort names with numbers; empty cells last.
  const compare = new Intl.Collator(undefined, { numeric: true }).compare;
  const keyOf = (row, column) => {
    const cell = row.cells[column];
    if (!("v" in cell.dataset)) return cell.textContent;
    return cell.dataset.v === "" ? null : Number(cell.dataset.v);
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    const headings = [...table.tHead.rows[0].cells];
    headings.forEach((heading, column) => {
      heading.querySelector("button").addEventListener("click", () => {
        const numeric = heading.classList.contains("number");
        const before = heading.getAttribute("aria-sort");
        // The first click shows the largest number, or the first name.
        const direction = before
          ? (before === "ascending" ? "descending" : "ascending")
          : (numeric ? "descending" : "ascending");
        headings.forEach((other) => other.removeAttribute("aria-sort"));
        heading.setAttribute("aria-sort", direction);
        const sign = direction === "ascending" ? 1 : -1;
        const rows = [...table.tBodies[0].rows].map((row) => [keyOf(row, column), row]);
        rows.sort(([a], [b]) => {
          if (a === null || b === null) return (a === null) - (b === null);
          return sign * (typeof a === "number" && typeof b === "number" ? a - b : compare(a, b));
        });
        table.tBodies[0].append(...rows.map(([, row]) => row));
      });
    });
  }

  // Paper shows what a click would: every table.
  addEventListener("beforeprint", () => {
    for (const details of document.querySelectorAll("details")) details.open = true;
  });
})();
