// Syntax highlighting of code (highlight.js with its common languages).
import hljs from "highlight.js/lib/common";

/**
 * Maximum length in characters of highlighted code. Longer code is shown without colours, because highlighting would block the
 * page.
 */
const maxCharacters = 50_000;

export async function highlight(code: HTMLElement, language: string): Promise<void> {
  const text = code.textContent ?? "";
  if (text.length > maxCharacters || hljs.getLanguage(language) === undefined) return;
  code.innerHTML = hljs.highlight(text, { language, ignoreIllegals: true }).value;
  code.classList.add("hljs");
}
