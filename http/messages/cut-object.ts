// Truncated object: reads a JSON object whose text was cut off by the token limit. Clients parse the truncated input of a
// streamed tool call by the same rules, so a message has the same input whether or not it is streamed.

/** JSON token: a string, bracket, comma, colon, number or word, or the opening quote of an unterminated string. */
const token = /"(?:[^"\\]|\\.)*"|[{}[\],:"]|[^\s{}[\],:"]+/g;

/** Returns the object that consists of the complete values. `text` must be the beginning of a JSON object. */
export function readCutObject(text: string): unknown {
  const closers: string[] = [];
  let end = 0;
  let before = "";
  for (const { 0: found, index } of text.matchAll(token)) {
    if (found === '"') break;
    const at = index + found.length;
    if (found === "{" || found === "[") closers.push(found === "{" ? "}" : "]");
    if (found === "}" || found === "]") closers.pop();
    const isKey = found.startsWith('"') && before !== ":" && closers.at(-1) === "}";
    // A number or word at the end of the text may be incomplete.
    const isWhole = at < text.length || /["{}[\]]$/.test(found);
    if (isWhole && !isKey && found !== "," && found !== ":") end = at;
    before = found;
  }
  return end === 0 ? {} : JSON.parse(text.slice(0, end) + closers.reverse().join(""));
}
