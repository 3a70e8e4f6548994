// Colours of program code (highlight.js, the common languages).
import hljs from "highlight.js/lib/common";

/** Longer code is shown without colours, because it would block the page. */
const maxCharacters = 50_000;

export async function highlight(code: HTMLElement, language: string): Promise<void> {
  const text = code.textContent ?? "";
  if (text.length > maxCharacters || hljs.getLanguage(language) === undefined) return;
  code.innerHTML = hljs.highlight(text, { language, ignoreIllegals: true }).value;
  code.classList.add("hljs");
}
