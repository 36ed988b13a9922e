// Dark or light: the system's theme, until the reader chooses one.

import type { Theme } from "./colour.ts";

/** The theme that is shown. */
export function currentTheme(): Theme {
  const chosen = document.documentElement.dataset["theme"];
  if (chosen === "dark" || chosen === "light") return chosen;
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

/** Switches between dark and light. */
export function toggleTheme(): void {
  document.documentElement.dataset["theme"] = currentTheme() === "dark" ? "light" : "dark";
}
