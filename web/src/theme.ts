// Dark or light: as the system says, until the reader chooses.

import type { Theme } from "./colour.ts";

/** The theme that is shown. */
export function currentTheme(): Theme {
  const chosen = document.documentElement.dataset["theme"];
  if (chosen === "dark" || chosen === "light") return chosen;
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

/** Shows the other theme. */
export function toggleTheme(): void {
  document.documentElement.dataset["theme"] = currentTheme() === "dark" ? "light" : "dark";
}
