// Groups of buttons that behave like radio buttons: one is chosen.

export interface Option<T extends string> {
  value: T;
  label: string;
  /** The reason if the option is disabled. */
  unavailable?: string | undefined;
}

export class Choice<T extends string> {
  readonly #buttons = new Map<T, HTMLButtonElement>();
  #value: T;

  constructor(box: HTMLElement, options: Option<T>[], value: T, private readonly chosen: (value: T) => void) {
    this.#value = value;
    for (const option of options) {
      const button = document.createElement("button");
      button.type = "button";
      button.role = "radio";
      button.dataset["value"] = option.value;
      button.textContent = option.label;
      button.addEventListener("click", () => this.choose(option.value));
      box.append(button);
      this.#buttons.set(option.value, button);
    }
    this.allow(options);
    box.addEventListener("keydown", (event) => this.#key(event));
  }

  get value(): T {
    return this.#value;
  }

  /** Chooses an option, like a click; `quietly`: what follows from it is done by the caller. */
  choose(value: T, quietly = false): void {
    if (value === this.#value || this.#buttons.get(value)?.disabled) return;
    this.#value = value;
    this.#mark();
    if (!quietly) this.chosen(value);
  }

  /** Enables and disables options. */
  allow(options: Option<T>[]): void {
    for (const option of options) {
      const button = this.#buttons.get(option.value)!;
      button.disabled = option.unavailable !== undefined;
      button.title = option.unavailable ?? "";
    }
    this.#mark();
  }

  #mark(): void {
    for (const [value, button] of this.#buttons) {
      button.ariaChecked = String(value === this.#value);
      button.tabIndex = value === this.#value ? 0 : -1;
    }
  }

  #key(event: KeyboardEvent): void {
    const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (by === undefined) return;
    const enabled = [...this.#buttons].filter(([, button]) => !button.disabled);
    const at = enabled.findIndex(([value]) => value === this.#value);
    const [value, button] = enabled[(at + by + enabled.length) % enabled.length]!;
    event.preventDefault();
    button.focus();
    this.choose(value);
  }
}

/** Whether a key clicked the button. The number of clicks is 0 then. */
export function isByKey(event: MouseEvent): boolean {
  return event.detail === 0;
}

/** What the buttons do that are hidden or replaced by it: the keyboard's focus goes to where the next keys are of use. */
export function thenFocus(element: HTMLElement, byKey: boolean, action: () => void): void {
  action();
  if (byKey) element.focus({ preventScroll: true });
}
