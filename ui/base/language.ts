// Texts of the UI in the language of the user. English is part of the first bundle, other languages are loaded when chosen.
import { signal } from "@preact/signals";
import { oneOf, preference } from "./preference.ts";
import { english, type TextKey } from "./texts/en.ts";

type Texts = Readonly<Record<TextKey, string>>;

/** Languages by their codes, with their own names. */
export const languages = { en: "English", de: "Deutsch", fr: "Français" } as const;
export type Language = keyof typeof languages;

const codes = Object.keys(languages) as Language[];
const loaders: Readonly<Record<Exclude<Language, "en">, () => Promise<Texts>>> = {
  de: async () => (await import("./texts/de.ts")).german,
  fr: async () => (await import("./texts/fr.ts")).french,
};

export const language = preference<Language>("language", usual(), oneOf(...codes));
const texts = signal<Texts>(english);

language.subscribe((chosen) => {
  void load(chosen);
});

/** Returns the text of a key in the user's language. `{name}` is replaced by the value with this name. */
export function t(key: TextKey, values: Readonly<Record<string, string | number>> = {}): string {
  return texts.value[key].replace(/\{(\w+)\}/g, (whole, name: string) => String(values[name] ?? whole));
}

async function load(chosen: Language): Promise<void> {
  const loaded = chosen === "en" ? english : await loaders[chosen]();
  if (language.peek() !== chosen) return;
  document.documentElement.lang = chosen;
  texts.value = loaded;
}

function usual(): Language {
  const wanted = navigator.languages.map((name) => name.slice(0, 2));
  return codes.find((code) => code === wanted.find((name) => codes.some((one) => one === name))) ?? "en";
}
