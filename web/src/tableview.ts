// The table's rows on the page.

import { type Scale, scaleOf } from "./bars.ts";
import { isByKey } from "./controls.ts";
import { clipped, percent } from "./format.ts";
import { type Row, type SortKey, sorted } from "./table.ts";
import type { Texts } from "./texts.ts";

/** The number of rows at first, and the number that each click on "Show more" adds. */
const PAGE = 50;

export interface TableEvents {
  /** A row's name was clicked, or chosen with a key. */
  picked(row: Row, byKey: boolean): void;
  /** A function's callers and callees were asked for. */
  centred(row: Row, byKey: boolean): void;
}

export class TableView {
  readonly #body: HTMLTableSectionElement;
  #rows: Row[] = [];
  #texts: Texts | null = null;
  #whole = 0;
  #scales: Record<"self" | "total", Scale> = { self: { full: 0, longest: 0 }, total: { full: 0, longest: 0 } };
  /** Whether rows are functions, which have callers and callees. */
  #functions = true;
  #key: SortKey = "self";
  #ascending = false;
  #most = PAGE;

  constructor(
    private readonly table: HTMLElement,
    private readonly more: HTMLElement,
    private readonly counted: HTMLElement,
    private readonly events: TableEvents,
  ) {
    this.#body = table.querySelector("tbody")!;
    for (const button of table.querySelectorAll<HTMLElement>("[data-sort]")) {
      button.addEventListener("click", () => this.#sort(button.dataset["sort"] as SortKey));
    }
    more.addEventListener("click", () => {
      this.#most += 4 * PAGE;
      this.#draw();
    });
  }

  show(rows: Row[], texts: Texts, whole: number, functions: boolean): void {
    this.#rows = rows;
    this.#functions = functions;
    this.#texts = texts;
    this.#whole = whole;
    this.#most = PAGE;
    const scale = (key: "self" | "total") => scaleOf(rows.map((row) => row[key].estimate));
    this.#scales = { self: scale("self"), total: scale("total") };
    this.#draw();
  }

  #sort(key: SortKey): void {
    // The first click sorts names from A, and numbers from the highest.
    this.#ascending = key === this.#key ? !this.#ascending : key === "name";
    this.#key = key;
    this.#draw();
  }

  #draw(): void {
    for (const button of this.table.querySelectorAll<HTMLElement>("[data-sort]")) {
      const cell = button.closest("th")!;
      if (button.dataset["sort"] !== this.#key) cell.removeAttribute("aria-sort");
      else cell.ariaSort = this.#ascending ? "ascending" : "descending";
    }
    const rows = sorted(this.#rows, this.#key, this.#ascending);
    this.#body.replaceChildren(...rows.slice(0, this.#most).map((row) => this.#row(row)));
    this.counted.textContent = `${rows.length.toLocaleString("en-US")} in all`;
    this.more.hidden = rows.length <= this.#most;
    this.more.textContent = `Show more (${(rows.length - this.#most).toLocaleString("en-US")} left)`;
  }

  #row(row: Row): HTMLTableRowElement {
    const texts = this.#texts!;
    const line = document.createElement("tr");
    const name = cell("th", "name", "");
    name.setAttribute("scope", "row");
    const pick = document.createElement("button");
    pick.type = "button";
    pick.className = "pick";
    const label = document.createElement("bdi");
    label.textContent = clipped(row.name, 300) || "(no name)";
    pick.append(label);
    pick.title = "Search for this";
    pick.addEventListener("click", (event) => this.events.picked(row, isByKey(event)));
    const place = document.createElement("bdi");
    place.className = "place";
    place.textContent = clipped(row.place, 300);
    name.append(pick);
    if (this.#functions) {
      const centre = document.createElement("button");
      centre.type = "button";
      centre.className = "centre";
      centre.textContent = "⇅";
      centre.title = "Show its callers and callees";
      centre.ariaLabel = `Callers and callees of ${clipped(row.name, 100)}`;
      centre.addEventListener("click", (event) => this.events.centred(row, isByKey(event)));
      name.append(centre);
    }
    name.append(place);
    line.append(
      name,
      this.#share(row.self.estimate, this.#scales.self),
      cell("td", "interval", texts.interval(row.self)),
      this.#share(row.total.estimate, this.#scales.total),
      cell("td", "interval", texts.interval(row.total)),
      cell("td", "samples", row.samples.toLocaleString("en-US")),
    );
    return line;
  }

  /** A value, with its share of the whole, and a bar behind it. */
  #share(value: number, scale: Scale): HTMLElement {
    const made = cell("td", "share", "");
    const figure = document.createElement("span");
    figure.textContent = this.#texts!.value(value);
    const share = document.createElement("span");
    share.className = "percent";
    share.textContent = percent(value, this.#whole);
    made.append(figure, share);
    if (value > scale.longest) made.classList.add("cut");
    made.style.setProperty("--share", String(scale.full > 0 ? Math.min(value / scale.full, 1) : 0));
    return made;
  }
}

function cell(tag: "td" | "th", name: string, text: string): HTMLElement {
  const made = document.createElement(tag);
  made.className = name;
  made.textContent = text;
  return made;
}
