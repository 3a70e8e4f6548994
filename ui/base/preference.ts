// Preferences of this browser, such as the theme: signals whose values survive a reload and are shared by all tabs.
import { type Signal, signal } from "@preact/signals";

const prefix = "troupe.";

/** Returns a signal whose value is stored under `name`. `isValid`: checks a value that was stored earlier. */
export function preference<T>(name: string, fallback: T, isValid: (value: unknown) => value is T): Signal<T> {
  const key = prefix + name;
  const read = (text: string | null): T => {
    if (text === null) return fallback;
    try {
      const value: unknown = JSON.parse(text);
      return isValid(value) ? value : fallback;
    } catch {
      return fallback;
    }
  };
  const kept = signal(read(stored(key)));
  let written = JSON.stringify(kept.value);
  kept.subscribe((value) => {
    const text = JSON.stringify(value);
    if (text === written) return;
    written = text;
    store(key, text);
  });
  addEventListener("storage", (event) => {
    if (event.key !== key) return;
    written = event.newValue ?? "";
    kept.value = read(event.newValue);
  });
  return kept;
}

export function oneOf<T extends string>(...values: readonly T[]): (value: unknown) => value is T {
  return (value): value is T => values.some((one) => one === value);
}

export function isText(value: unknown): value is string {
  return typeof value === "string";
}

/**
 * Returns the stored text; null if there is none, or if the browser denies storage. Without storage, the preference lasts until
 * the page is closed.
 */
function stored(key: string): string | null {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

function store(key: string, text: string): void {
  try {
    localStorage.setItem(key, text);
  } catch {
    // Without storage, the preference lasts until the page is closed.
  }
}
